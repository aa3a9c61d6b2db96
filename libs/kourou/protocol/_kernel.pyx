# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
"""The record kernel: reading, checking, stamping and projecting many records in C, and the text of
signed headers.

The counterpart of kourou.protocol.kernel_python, which specifies each function;
kourou.protocol.kernel selects one of the two. Every loop over records is a `nogil` function, so the
compiler refuses a Python operation in it. A length is checked against the existing bytes before it
is used.

Numbers are passed as buffers of native 64-bit integers, one column after the other.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from "crc32.h" nogil:
    void crc32_setup()
    uint32_t crc32_of(const uint8_t *p, size_t n)

VERSION = 10

cdef enum:
    FIXED = 91  # bytes of a record with IPv4 hosts and nothing variable
    HEAD = 88  # bytes of such a record before its body
    V6_EXTRA = 12
    CRC_BYTES = 20
    MARK_BYTES = 9
    FIELDS = 15
    BORN_V6 = 16
    STORE_V6 = 32
    TRANSACTION = 12
    PROPERTIES_MAX = 32767
    ROLLBACK = 12  # of the bits TRANSACTION
    SECONDS_MAX = 0x7FFFFFFF
    ENTRY = 20  # bytes of an entry of the key index
    TAIL = 8  # bytes that a segment keeps free after its last record
    EDITED_MAX = 64  # the maximum number of properties that are edited here
    CHANGES_MAX = 8
    UNIT = 20  # bytes of a unit of a consume queue
    FILLER_SIZE = 0x7FFFFFFF
    ITEM = 22  # bytes of an item of a batch without body and properties
    HEADER_MAX = 2048  # the maximum bytes of a header that is read here
    SIGNED_MAX = 64  # the maximum number of its fields
    QUOTE = 34
    COMMA = 44
    COLON = 58
    BACKSLASH = 92
    OPEN = 123
    CLOSE = 125

cdef uint32_t MAGIC = 0xDAA320A7
cdef uint32_t BLANK_MAGIC = 0xCBD43194
cdef uint32_t CRC_MASK = 0x7FFFFFFF
cdef int64_t EXT_CODES_BELOW = -(<int64_t>1 << 31)
cdef const char *MARK = "__CRC32#\x01"
cdef const char *FIELDS_NAME = "extFields"
cdef const char *NULL_VALUE = "null"

crc32_setup()


cdef class Column:
    """The bytes of an object, valid as long as this object; `values` are the bytes as numbers.

    Raises ValueError if there are fewer than `count` numbers.
    """

    cdef Py_buffer view
    cdef uint8_t *at
    cdef const int64_t *values
    cdef int64_t size

    def __cinit__(self, source, int flags, int64_t count=0):
        PyObject_GetBuffer(source, &self.view, flags)
        self.at = <uint8_t *>self.view.buf
        self.values = <const int64_t *>self.view.buf
        self.size = self.view.len
        if self.size // 8 < count:
            raise ValueError("the columns are not of one length")

    def __dealloc__(self):
        PyBuffer_Release(&self.view)  # does nothing for a view that was not acquired


cdef struct Parts:
    int64_t size
    int64_t body_at
    int64_t body_end
    int64_t topic_end
    uint32_t sys_flag
    int64_t stored_at


cdef inline uint32_t get32(const uint8_t *p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline int64_t get64(const uint8_t *p) noexcept nogil:
    return <int64_t>((<uint64_t>get32(p) << 32) | get32(p + 4))


cdef inline void put32(uint8_t *p, uint32_t value) noexcept nogil:
    p[0] = value >> 24
    p[1] = (value >> 16) & 255
    p[2] = (value >> 8) & 255
    p[3] = value & 255


cdef inline void put64(uint8_t *p, int64_t value) noexcept nogil:
    put32(p, <uint32_t>(<uint64_t>value >> 32))
    put32(p + 4, <uint32_t>value)


# -- structure ------------------------------------------------------------------------------------


cdef bint parse(const uint8_t *p, int64_t at, int64_t end, Parts *found) noexcept nogil:
    """Parse the record at `at`, which must end by `end`; False if it is not a record."""
    cdef int64_t fixed = FIXED, size, spare, body_length, topic_length, extra = 0
    cdef uint32_t sys_flag, props_length
    if end - at < FIXED or get32(p + at + 4) != MAGIC:
        return False
    sys_flag = get32(p + at + 36)
    found.stored_at = at + 56
    if sys_flag & BORN_V6:
        extra += V6_EXTRA
        found.stored_at += V6_EXTRA
    if sys_flag & STORE_V6:
        extra += V6_EXTRA
    fixed += extra
    size = get32(p + at)
    if size < fixed or size > end - at:
        return False
    body_length = <int32_t>get32(p + at + HEAD + extra - 4)
    spare = size - fixed - body_length
    if body_length < 0 or spare < 0:
        return False
    found.size = size
    found.sys_flag = sys_flag
    found.body_at = at + HEAD + extra
    found.body_end = found.body_at + body_length
    topic_length = p[found.body_end]
    if topic_length == 0 or topic_length > 127 or topic_length > spare:
        return False
    found.topic_end = found.body_end + 1 + topic_length
    props_length = (<uint32_t>p[found.topic_end] << 8) | p[found.topic_end + 1]
    return props_length == spare - topic_length and props_length <= PROPERTIES_MAX


cdef void fill(const uint8_t *p, int64_t at, const Parts *r, int64_t *row, int64_t n) noexcept nogil:
    """Write the columns of one record: `row` points into the first column, `n` rows apart."""
    cdef int64_t last = r.body_at - 16
    row[0] = at
    row[n] = r.size
    row[2 * n] = get32(p + at + 8)
    row[3 * n] = <int32_t>get32(p + at + 12)
    row[4 * n] = <int32_t>get32(p + at + 16)
    row[5 * n] = get64(p + at + 20)
    row[6 * n] = get64(p + at + 28)
    row[7 * n] = <int32_t>r.sys_flag
    row[8 * n] = get64(p + at + 40)
    row[9 * n] = get64(p + r.stored_at)
    row[10 * n] = <int32_t>get32(p + last)
    row[11 * n] = get64(p + last + 4)
    row[12 * n] = r.body_at
    row[13 * n] = r.body_end
    row[14 * n] = r.topic_end


cdef int64_t read_places(
    const uint8_t *p, int64_t length, const int64_t *starts, const int64_t *sizes, int64_t n, int64_t *table
) noexcept nogil:
    cdef int64_t i
    cdef Parts r
    for i in range(n):
        if starts[i] < 0 or sizes[i] < 0 or starts[i] > length or sizes[i] > length - starts[i]:
            return i
        if not parse(p, starts[i], starts[i] + sizes[i], &r) or r.size != sizes[i]:
            return i
        fill(p, starts[i], &r, table + i, n)
    return -1


cdef int64_t count_records(const uint8_t *p, int64_t length, int64_t *next_at) noexcept nogil:
    cdef int64_t at = 0, n = 0
    cdef Parts r
    while length - at >= 8 and parse(p, at, length, &r):
        at += r.size
        n += 1
    next_at[0] = at
    return n


cdef void fill_all(const uint8_t *p, int64_t length, int64_t n, int64_t *table) noexcept nogil:
    cdef int64_t i, at = 0
    cdef Parts r
    for i in range(n):
        parse(p, at, length, &r)
        fill(p, at, &r, table + i, n)
        at += r.size


def read(records, starts, sizes):
    """See kernel_python.read."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column at = Column(starts, PyBUF_SIMPLE)
    cdef int64_t n = at.size // 8
    cdef Column size = Column(sizes, PyBUF_SIMPLE, n)
    table = PyByteArray_FromStringAndSize(NULL, n * FIELDS * 8)
    bad = read_places(
        data.at, data.size, at.values, size.values, n, <int64_t *>PyByteArray_AsString(table)
    )
    return table, bad


def scan(records):
    """See kernel_python.scan."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef int64_t next_at = 0
    cdef int64_t n = count_records(data.at, data.size, &next_at)
    table = PyByteArray_FromStringAndSize(NULL, n * FIELDS * 8)
    fill_all(data.at, data.size, n, <int64_t *>PyByteArray_AsString(table))
    return table, next_at


# -- values of properties -------------------------------------------------------------------------


cdef void find_values(
    const uint8_t *p, int64_t at, int64_t end, const char **names, const int64_t *lengths, int64_t n,
    int64_t *found,
) noexcept nogil:
    """The start and end of the value of the last property of each name; 0 and 0 without one."""
    cdef int64_t i, value_at, stop
    cdef const void *separator
    memset(found, 0, 2 * n * sizeof(int64_t))
    while at < end:
        separator = memchr(p + at, 2, end - at)
        stop = end if separator == NULL else <const uint8_t *>separator - p
        for i in range(n):
            value_at = at + lengths[i] + 1
            if value_at < stop and p[value_at - 1] == 1 and memcmp(p + at, names[i], lengths[i]) == 0:
                found[2 * i] = value_at
                found[2 * i + 1] = stop
        at = stop + 1


cdef class Names:
    """The bytes of names, valid as long as the tuple."""

    cdef object pointers
    cdef object lengths
    cdef const char **at
    cdef int64_t *length

    def __cinit__(self, tuple names):
        cdef int64_t i, n = len(names)
        self.pointers = PyByteArray_FromStringAndSize(NULL, n * sizeof(char *))
        self.lengths = PyByteArray_FromStringAndSize(NULL, n * 8)
        self.at = <const char **>PyByteArray_AsString(self.pointers)
        self.length = <int64_t *>PyByteArray_AsString(self.lengths)
        for i in range(n):
            self.at[i] = PyBytes_AsString(names[i])
            self.length[i] = len(names[i])


cdef tuple values_at(const uint8_t *p, const int64_t *place, int64_t n):
    cdef int64_t i
    return tuple([
        PyBytes_FromStringAndSize(<const char *>p + place[2 * i], place[2 * i + 1] - place[2 * i])
        if place[2 * i + 1] else None
        for i in range(n)
    ])


def values(records, tuple names):
    """See kernel_python.values."""
    cdef int64_t n = len(names)
    cdef Column record
    cdef Parts r
    cdef Names name = Names(names)
    places = PyByteArray_FromStringAndSize(NULL, n * 16)
    cdef int64_t *place = <int64_t *>PyByteArray_AsString(places)
    found = []
    for one in records:
        record = Column(one, PyBUF_SIMPLE)
        if not parse(record.at, 0, record.size, &r) or r.size != record.size:
            raise ValueError("these bytes are no record")
        find_values(record.at, r.topic_end + 2, r.size, name.at, name.length, n, place)
        found.append(values_at(record.at, place, n))
    return found


cdef uint64_t hash_of(const uint8_t *p, const int64_t *place, int64_t n) noexcept nogil:
    cdef uint64_t made = 14695981039346656037u
    cdef int64_t i, at
    for i in range(n):
        for at in range(place[2 * i], place[2 * i + 1]):
            made = (made ^ p[at]) * 1099511628211u
        made = (made ^ (256 + (place[2 * i + 1] != 0))) * 1099511628211u
    return made ^ (made >> 32)


cdef bint are_same(const uint8_t *p, const int64_t *one, const int64_t *other, int64_t n) noexcept nogil:
    cdef int64_t i, size
    for i in range(n):
        size = one[2 * i + 1] - one[2 * i]
        if size != other[2 * i + 1] - other[2 * i] or (one[2 * i + 1] == 0) != (other[2 * i + 1] == 0):
            return False
        if memcmp(p + one[2 * i], p + other[2 * i], size) != 0:
            return False
    return True


cdef int64_t group_all(
    const uint8_t *p, int64_t length, const int64_t *starts, const int64_t *sizes, int64_t n,
    int64_t base, const char **names, const int64_t *lengths, int64_t m, int64_t *places,
    int32_t *slots, int64_t mask, int64_t *group_of,
) noexcept nogil:
    """The number of groups, -1 if something is not a record. `slots` is a hash table of them."""
    cdef int64_t i, at, slot, count = 0
    cdef int64_t *own
    cdef Parts r
    memset(slots, 255, (mask + 1) * sizeof(int32_t))
    for i in range(n):
        at = <int64_t>(<uint64_t>starts[i] - <uint64_t>base)
        if at < 0 or sizes[i] < 0 or at > length or sizes[i] > length - at:
            return -1
        if not parse(p, at, at + sizes[i], &r) or r.size != sizes[i]:
            return -1
        own = places + 2 * m * count
        find_values(p, r.topic_end + 2, at + r.size, names, lengths, m, own)
        slot = hash_of(p, own, m) & mask
        while slots[slot] >= 0 and not are_same(p, own, places + 2 * m * slots[slot], m):
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = <int32_t>count
            count += 1
        group_of[i] = slots[slot]
    return count


def value_groups(records, starts, sizes, tuple names, int64_t base=0):
    """See kernel_python.value_groups."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column at = Column(starts, PyBUF_SIMPLE)
    cdef int64_t n = at.size // 8, m = len(names), room = 4, count, i
    cdef Column size = Column(sizes, PyBUF_SIMPLE, n)
    cdef Names name = Names(names)
    while room < 2 * n:
        room *= 2
    places = PyByteArray_FromStringAndSize(NULL, n * m * 16)
    slots = PyByteArray_FromStringAndSize(NULL, room * sizeof(int32_t))
    group_of = PyByteArray_FromStringAndSize(NULL, n * 8)
    cdef int64_t *place = <int64_t *>PyByteArray_AsString(places)
    count = group_all(
        data.at, data.size, at.values, size.values, n, base, name.at, name.length, m, place,
        <int32_t *>PyByteArray_AsString(slots), room - 1,
        <int64_t *>PyByteArray_AsString(group_of),
    )
    if count < 0:
        raise ValueError("these bytes are no record")
    return [values_at(data.at, place + 2 * m * i, m) for i in range(count)], group_of


cdef int64_t measure_places(
    int64_t length, const int64_t *starts, const int64_t *sizes, int64_t n, int64_t base
) noexcept nogil:
    """The sum of the sizes; -1 if one is not within the bytes."""
    cdef int64_t i, at, total = 0
    for i in range(n):
        at = <int64_t>(<uint64_t>starts[i] - <uint64_t>base)
        if at < 0 or sizes[i] < 0 or at > length or sizes[i] > length - at:
            return -1
        if sizes[i] > INT64_MAX - total:
            return -1
        total += sizes[i]
    return total


cdef void copy_all(
    const uint8_t *p, const int64_t *starts, const int64_t *sizes, int64_t n, int64_t base, uint8_t *to
) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        memcpy(to, p + (starts[i] - base), sizes[i])
        to += sizes[i]


def gather(records, starts, sizes, int64_t base=0):
    """See kernel_python.gather."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column at = Column(starts, PyBUF_SIMPLE)
    cdef int64_t n = at.size // 8
    cdef Column size = Column(sizes, PyBUF_SIMPLE, n)
    cdef int64_t total = measure_places(data.size, at.values, size.values, n, base)
    if total < 0:
        raise ValueError("a record is not within the bytes")
    made = PyBytes_FromStringAndSize(NULL, total)
    copy_all(
        data.at, at.values, size.values, n, base, <uint8_t *>PyBytes_AsString(made)
    )
    return made


# -- units of a queue -----------------------------------------------------------------------------


cdef struct Chosen:
    int64_t count
    int64_t fillers
    int64_t end
    int64_t low
    int64_t high
    int64_t total
    bint adjacent


cdef bint is_among(const int64_t *codes, int64_t n, int64_t code) noexcept nogil:
    """True if the code is one of these sorted ones."""
    cdef int64_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < n and codes[low] == code


cdef void choose_all(
    const uint8_t *units, int64_t n, int64_t below, int64_t log_end, const int64_t *codes,
    int64_t codes_count, int64_t messages_max, int64_t bytes_max, int64_t *table, int64_t *fillers,
    Chosen *made,
) noexcept nogil:
    """`codes_count` is -1 without codes."""
    cdef int64_t i, position, size, end, code, last = 0
    memset(made, 0, sizeof(Chosen))
    memset(table, 0, 3 * n * sizeof(int64_t))
    made.adjacent = True
    made.end = n
    for i in range(n):
        position = get64(units + i * UNIT)
        size = <int32_t>get32(units + i * UNIT + 8)
        if size == FILLER_SIZE:
            fillers[made.fillers] = i
            made.fillers += 1
            continue
        end = <int64_t>(<uint64_t>position + <uint64_t>size)
        if below < end <= log_end:
            made.end = i
            return
        code = get64(units + i * UNIT + 12)
        if codes_count >= 0 and code >= EXT_CODES_BELOW and not is_among(codes, codes_count, code):
            continue
        if made.count and (made.count == messages_max or made.total + size > bytes_max):
            made.end = i
            return
        made.adjacent = made.adjacent and (made.count == 0 or position == last)
        made.low = position if made.count == 0 or position < made.low else made.low
        made.high = end if made.count == 0 or end > made.high else made.high
        table[made.count] = i
        table[n + made.count] = position
        table[2 * n + made.count] = size
        made.total += size
        made.count += 1
        last = end


def choose(units, int64_t below, int64_t log_end, codes, int64_t messages_max, int64_t bytes_max):
    """See kernel_python.choose."""
    cdef Column data = Column(units, PyBUF_SIMPLE)
    cdef int64_t n = data.size // UNIT, codes_count = -1, i
    cdef Column code
    cdef const int64_t *wanted = NULL
    cdef Chosen made
    if codes is not None:
        code = Column(codes, PyBUF_SIMPLE)
        wanted, codes_count = code.values, code.size // 8
    table = PyByteArray_FromStringAndSize(NULL, n * 24)
    fillers = PyByteArray_FromStringAndSize(NULL, n * 8)
    cdef int64_t *filler = <int64_t *>PyByteArray_AsString(fillers)
    choose_all(
        data.at, n, below, log_end, wanted, codes_count, messages_max, bytes_max,
        <int64_t *>PyByteArray_AsString(table), filler, &made,
    )
    return (
        made.count, table, [filler[i] for i in range(made.fillers)], made.end, made.low, made.high,
        made.total, made.adjacent,
    )


# -- checks ---------------------------------------------------------------------------------------


cdef inline bint is_marked(const uint8_t *p, int64_t props_at, int64_t end) noexcept nogil:
    return end - CRC_BYTES >= props_at and memcmp(p + end - CRC_BYTES, MARK, MARK_BYTES) == 0


cdef inline bint names(const uint8_t *p, int64_t at, int64_t end, const char *name, int64_t n) noexcept nogil:
    return end - at >= n and memcmp(p + at, name, n) == 0


cdef bint has_name(const uint8_t *p, int64_t at, int64_t end, const char *name, int64_t n) noexcept nogil:
    """True if `name` is anywhere in these bytes."""
    while end - at >= n:
        if p[at] == <uint8_t>name[0] and memcmp(p + at, name, n) == 0:
            return True
        at += 1
    return False


cdef int draft_problem(const uint8_t *p, int64_t at, const Parts *r, int64_t body_max) noexcept nogil:
    """0, or the rule that the draft breaks: 2 too large, 3 transactional, 4 no checksum, 5 damaged."""
    cdef int64_t props_at = r.topic_end + 2, end = at + r.size
    if r.body_end - r.body_at > body_max:
        return 2
    if r.sys_flag & TRANSACTION:
        return 3
    if end - props_at < PROPERTIES_MAX - CRC_BYTES and not is_marked(p, props_at, end):
        return 4
    if crc32_of(p + r.body_at, r.body_end - r.body_at) & CRC_MASK != get32(p + at + 8):
        return 5
    return 0


cdef bint may_move(const uint8_t *p, int64_t at, const Parts *r) noexcept nogil:
    cdef int64_t props_at = r.topic_end + 2, end = at + r.size
    return has_name(p, props_at, end, "DELAY\x01", 6) or has_name(p, props_at, end, "TRAN_MSG\x01", 9)


cdef int check_all(
    const uint8_t *p, int64_t length, const int64_t *sizes, int64_t n, int64_t body_max,
    int64_t *table, uint8_t *moves, int64_t *bad,
) noexcept nogil:
    """0 if all may be stored, else the problem of draft `bad`: 1 its structure, or as above.

    16: the sizes do not add up to the bytes.
    """
    cdef int64_t i, at = 0
    cdef int problem
    cdef Parts r
    bad[0] = 0
    for i in range(n):
        if sizes[i] < FIXED or sizes[i] > length - at:
            return 16
        at += sizes[i]
    if at != length:
        return 16
    at = 0
    for i in range(n):
        bad[0] = i
        if sizes[i] > length - at or not parse(p, at, at + sizes[i], &r) or r.size != sizes[i]:
            return 1
        problem = draft_problem(p, at, &r, body_max)
        if problem:
            return problem
        fill(p, at, &r, table + i, n)
        moves[i] = may_move(p, at, &r)
        at += sizes[i]
    bad[0] = 0
    return 0


def check_drafts(records, sizes, int64_t body_size_max):
    """See kernel_python.check_drafts."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column size = Column(sizes, PyBUF_SIMPLE)
    cdef int64_t n = size.size // 8, bad = 0
    table = PyByteArray_FromStringAndSize(NULL, n * FIELDS * 8)
    moves = PyByteArray_FromStringAndSize(NULL, n)
    problem = check_all(
        data.at, data.size, size.values, n, body_size_max,
        <int64_t *>PyByteArray_AsString(table), <uint8_t *>PyByteArray_AsString(moves), &bad,
    )
    return table, moves, problem, bad


cdef bint places_hold(int64_t length, const int64_t *table, int64_t n) noexcept nogil:
    """True if every topic of this table, which a caller passed, is inside the bytes."""
    cdef int64_t i
    for i in range(n):
        if table[13 * n + i] < 0 or table[14 * n + i] <= table[13 * n + i] or table[14 * n + i] > length:
            return False
    return True


cdef int target_problem(
    const uint8_t *p, const int64_t *table, int64_t n, const char **topics, const int64_t *lengths,
    const int64_t *queue_ids, int64_t targets, const int64_t *target_of,
) noexcept nogil:
    """0, or the field that differs from the target: 9 queue ID, 10 topic; -1 for an invalid target."""
    cdef int64_t i, target = 0, at
    for i in range(n):
        if target_of != NULL:
            target = target_of[i]
            if target < 0 or target >= targets:
                return -1
        if table[3 * n + i] != queue_ids[target]:
            return 9
    for i in range(n):
        if target_of != NULL:
            target = target_of[i]
        at = table[13 * n + i] + 1
        if table[14 * n + i] - at != lengths[target] or memcmp(p + at, topics[target], lengths[target]):
            return 10
    return 0


def check_targets(records, table, list topics, queue_ids, target_of=None):
    """See kernel_python.check_targets."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column columns = Column(table, PyBUF_SIMPLE)
    cdef int64_t n = columns.size // (8 * FIELDS), m = len(topics), i
    cdef Column queues = Column(queue_ids, PyBUF_SIMPLE, max(m, 1))
    cdef Column targets
    cdef const int64_t *target_at = NULL
    cdef bytes topic
    if target_of is not None:
        targets = Column(target_of, PyBUF_SIMPLE, n)
        target_at = targets.values
    if not m or not places_hold(data.size, columns.values, n):
        raise ValueError("the table is not that of these records")
    names = PyByteArray_FromStringAndSize(NULL, m * sizeof(char *))
    lengths = PyByteArray_FromStringAndSize(NULL, m * 8)
    cdef const char **name_at = <const char **>PyByteArray_AsString(names)
    cdef int64_t *length_at = <int64_t *>PyByteArray_AsString(lengths)
    for i in range(m):
        topic = topics[i]
        name_at[i] = topic
        length_at[i] = len(topic)
    problem = target_problem(
        data.at, columns.values, n, name_at, length_at, queues.values, m, target_at
    )
    if problem == -1:
        raise ValueError("a record has none of the queues")
    return problem


cdef int64_t same_topic(
    const uint8_t *p, const int64_t *table, int64_t first, int64_t n
) noexcept nogil:
    """The first record from `first` + 1 on whose topic differs from that of record `first`."""
    cdef int64_t at = table[13 * n + first] + 1, i
    cdef int64_t length = table[14 * n + first] - at
    for i in range(first + 1, n):
        if table[14 * n + i] - table[13 * n + i] - 1 != length:
            return i
        if memcmp(p + at, p + table[13 * n + i] + 1, length) != 0:
            return i
    return n


def topics(records, table):
    """See kernel_python.topics."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column columns = Column(table, PyBUF_SIMPLE)
    cdef int64_t n = columns.size // (8 * FIELDS), first = 0, last, number
    cdef const int64_t *t = columns.values
    cdef dict numbers = {}
    cdef list found = []
    cdef int64_t *of = NULL
    topic_of = None
    if not places_hold(data.size, t, n):
        raise ValueError("the table is not that of these records")
    while first < n:
        last = same_topic(data.at, t, first, n)
        topic = PyBytes_FromStringAndSize(
            <char *>data.at + t[13 * n + first] + 1, t[14 * n + first] - t[13 * n + first] - 1
        )
        if first == 0 and last == n:
            return [topic], None
        if of == NULL:
            topic_of = PyByteArray_FromStringAndSize(NULL, n * 8)
            of = <int64_t *>PyByteArray_AsString(topic_of)
        known = numbers.get(topic)
        if known is None:
            known = numbers[topic] = len(found)
            found.append(topic)
        number = known
        while first < last:
            of[first] = number
            first += 1
    return found, topic_of


# -- drafts ---------------------------------------------------------------------------------------


cdef struct Draft:
    const uint8_t *topic
    int64_t topic_bytes
    const uint8_t *host
    int64_t host_bytes
    int64_t born_ms
    int64_t prepared
    int32_t queue_id
    int32_t sys_flag
    int32_t reconsume_times
    int64_t head_bytes


cdef void describe(Draft *d, bint store_v6) noexcept nogil:
    """Set the fields that depend on the hosts."""
    d.sys_flag &= ~(BORN_V6 | STORE_V6)
    d.head_bytes = HEAD
    if store_v6:
        d.sys_flag |= STORE_V6
        d.head_bytes += V6_EXTRA
    if d.host_bytes == 20:
        d.sys_flag |= BORN_V6
        d.head_bytes += V6_EXTRA


cdef int64_t marked_bytes(const uint8_t *p, int64_t n, int64_t *kept, bint *parted) noexcept nogil:
    """The length of properties of `n` bytes with their checksum, if there is room for it.

    `kept`: how many of the bytes stay; `parted`: a separator follows those.
    """
    if n >= CRC_BYTES and memcmp(p + n - CRC_BYTES, MARK, MARK_BYTES) == 0:
        n -= CRC_BYTES
    kept[0] = n
    parted[0] = n > 0 and p[n - 1] != 2
    if n + parted[0] + CRC_BYTES <= PROPERTIES_MAX:
        return n + parted[0] + CRC_BYTES
    parted[0] = False
    return n


cdef uint8_t *put_head(
    uint8_t *to, const Draft *d, int64_t size, int32_t flag, const uint8_t *body, int64_t body_bytes
) noexcept nogil:
    """Write everything up to the topic; returns the place of the properties' length."""
    memset(to, 0, d.head_bytes)
    put32(to, <uint32_t>size)
    put32(to + 4, MAGIC)
    put32(to + 8, crc32_of(body, body_bytes) & CRC_MASK)
    put32(to + 12, <uint32_t>d.queue_id)
    put32(to + 16, <uint32_t>flag)
    put32(to + 36, <uint32_t>d.sys_flag)
    put64(to + 40, d.born_ms)
    memcpy(to + 48, d.host, d.host_bytes)
    to += d.head_bytes
    put32(to - 16, <uint32_t>d.reconsume_times)
    put64(to - 12, d.prepared)
    put32(to - 4, <uint32_t>body_bytes)
    memcpy(to, body, body_bytes)
    to += body_bytes
    to[0] = <uint8_t>d.topic_bytes
    memcpy(to + 1, d.topic, d.topic_bytes)
    return to + 1 + d.topic_bytes


cdef uint8_t *put_length(uint8_t *to, int64_t n) noexcept nogil:
    to[0] = (n >> 8) & 255
    to[1] = n & 255
    return to + 2


cdef void put_mark(uint8_t *to, bint parted) noexcept nogil:
    if parted:
        to[0] = 2
        to += 1
    memcpy(to, MARK, MARK_BYTES)
    memset(to + MARK_BYTES, 48, 10)
    to[CRC_BYTES - 1] = 2


def draft(
    bytes topic, int32_t queue_id, body, properties, int32_t flag, int32_t sys_flag,
    int64_t born_ms, bytes born_host, bint store_v6, int32_t reconsume_times, int64_t prepared,
    bint with_crc,
):
    """See kernel_python.draft."""
    cdef Column data = Column(body, PyBUF_SIMPLE)
    cdef Column text = Column(properties, PyBUF_SIMPLE)
    cdef int64_t kept = text.size, length = text.size, size
    cdef bint parted = False
    cdef uint8_t *to
    cdef Draft d
    d.topic, d.topic_bytes = topic, len(topic)
    d.host, d.host_bytes = born_host, len(born_host)
    d.born_ms, d.prepared, d.queue_id, d.sys_flag = born_ms, prepared, queue_id, sys_flag
    d.reconsume_times = reconsume_times
    if not 0 < d.topic_bytes <= 127 or (d.host_bytes != 8 and d.host_bytes != 20):
        raise ValueError("a topic has 1 to 127 bytes, a host 8 or 20")
    describe(&d, store_v6)
    if with_crc:
        length = marked_bytes(text.at, text.size, &kept, &parted)
    size = d.head_bytes + data.size + 1 + d.topic_bytes + 2 + length
    if length > PROPERTIES_MAX or size > 0x7FFFFFFF:
        return None
    made = PyBytes_FromStringAndSize(NULL, size)
    to = put_head(<uint8_t *>PyBytes_AsString(made), &d, size, flag, data.at, data.size)
    to = put_length(to, length)
    memcpy(to, text.at, kept)
    if length > kept:
        put_mark(to + kept, parted)
    return made


cdef struct Item:
    const uint8_t *body
    int64_t body_bytes
    const uint8_t *properties
    int64_t kept
    int64_t length
    int64_t size
    int32_t flag
    int32_t sys_flag
    bint parted


cdef int64_t measure_items(Draft *d, Item *items, int64_t n, bint store_v6) noexcept nogil:
    """The size of these drafts together; -1 if one would be too long."""
    cdef int64_t i, total = 0
    cdef Item *one
    describe(d, store_v6)
    for i in range(n):
        one = items + i
        one.length = marked_bytes(one.properties, one.kept, &one.kept, &one.parted)
        one.size = d.head_bytes + one.body_bytes + 1 + d.topic_bytes + 2 + one.length
        if one.length > PROPERTIES_MAX or one.size > 0x7FFFFFFF:
            return -1
        total += one.size
    return total


cdef void put_items(
    Draft *d, const Item *items, int64_t n, bint store_v6, uint8_t *to
) noexcept nogil:
    cdef int64_t i
    cdef const Item *one
    for i in range(n):
        one = items + i
        d.sys_flag = one.sys_flag
        describe(d, store_v6)
        to = put_head(to, d, one.size, one.flag, one.body, one.body_bytes)
        to = put_length(to, one.length)
        memcpy(to, one.properties, one.kept)
        if one.length > one.kept:
            put_mark(to + one.kept, one.parted)
        to += one.length


def drafts(
    bytes topic, int32_t queue_id, list bodies, list properties, list flags, list sys_flags,
    int64_t born_ms, bytes born_host, bint store_v6,
):
    """See kernel_python.drafts."""
    cdef int64_t i, n = len(bodies), total
    cdef bytes body, text
    cdef Draft d
    d.topic, d.topic_bytes = topic, len(topic)
    d.host, d.host_bytes = born_host, len(born_host)
    d.born_ms, d.prepared, d.queue_id, d.sys_flag = born_ms, 0, queue_id, 0
    d.reconsume_times = 0
    if not 0 < d.topic_bytes <= 127 or (d.host_bytes != 8 and d.host_bytes != 20):
        raise ValueError("a topic has 1 to 127 bytes, a host 8 or 20")
    if len(properties) != n or len(flags) != n or len(sys_flags) != n:
        raise ValueError("each body needs its properties and flags")
    scratch = PyByteArray_FromStringAndSize(NULL, n * <int64_t>sizeof(Item))
    cdef Item *items = <Item *>PyByteArray_AsString(scratch)
    for i in range(n):
        body, text = bodies[i], properties[i]
        if body is None or text is None:
            raise TypeError("a body and its properties are bytes")
        items[i].body, items[i].body_bytes = body, len(body)
        items[i].properties, items[i].kept = text, len(text)
        items[i].flag, items[i].sys_flag = flags[i], sys_flags[i]
    total = measure_items(&d, items, n, store_v6)
    if total < 0:
        return None
    made = PyBytes_FromStringAndSize(NULL, total)
    put_items(&d, items, n, store_v6, <uint8_t *>PyBytes_AsString(made))
    return made, [items[i].size for i in range(n)]


cdef int item_problem(
    const uint8_t *p, int64_t length, int64_t at, int64_t *body_bytes, int64_t *own_bytes
) noexcept nogil:
    """0, or the problem of the item of a batch at `at`: 11 it is cut, 12 its lengths."""
    cdef int64_t size
    if length - at < ITEM:
        return 11
    size = <int32_t>get32(p + at)
    body_bytes[0] = <int32_t>get32(p + at + 16)
    if body_bytes[0] < 0 or body_bytes[0] > size - ITEM or size > length - at:
        return 12
    own_bytes[0] = (<int64_t>p[at + 20 + body_bytes[0]] << 8) | p[at + 21 + body_bytes[0]]
    return 0 if size == ITEM + body_bytes[0] + own_bytes[0] else 12


cdef int64_t joined_bytes(
    const uint8_t *own, int64_t n, const uint8_t *shared, int64_t shared_bytes, bint *between,
    int64_t *kept, bint *parted, int64_t *whole,
) noexcept nogil:
    """The length of the properties of an item: its own, then the shared ones, then the checksum.

    `whole` is their length without the checksum. Shared ones do not end in a checksum, because a
    producer sends them; the item's own may if there are no shared ones, and it is removed.
    """
    between[0] = n > 0 and own[n - 1] != 2
    whole[0] = n + between[0] + shared_bytes
    parted[0] = shared_bytes > 0 and shared[shared_bytes - 1] != 2
    kept[0] = whole[0]
    if whole[0] + parted[0] + CRC_BYTES <= PROPERTIES_MAX:
        return whole[0] + parted[0] + CRC_BYTES
    parted[0] = False
    return whole[0]


cdef int measure_batch(
    const uint8_t *p, int64_t length, const Draft *d, const uint8_t *shared, int64_t shared_bytes,
    int64_t count_max, int64_t bytes_max, int64_t *n, int64_t *total,
) noexcept nogil:
    """The number and the size of a batch's drafts; 0, or the problem of item `n`."""
    cdef int64_t at = 0, body_bytes = 0, own_bytes = 0, kept, whole, props
    cdef bint between, parted
    cdef int problem
    n[0] = total[0] = 0
    while at < length:
        problem = item_problem(p, length, at, &body_bytes, &own_bytes)
        if problem:
            return problem
        if n[0] == count_max:
            return 13
        props = joined_bytes(
            p + at + ITEM + body_bytes, own_bytes, shared, shared_bytes, &between, &kept, &parted,
            &whole,
        )
        if whole > PROPERTIES_MAX:
            return 14
        total[0] += d.head_bytes + body_bytes + 1 + d.topic_bytes + 2 + props
        if total[0] > bytes_max:
            return 15
        at += ITEM + body_bytes + own_bytes
        n[0] += 1
    return 0


cdef void put_batch(
    const uint8_t *p, int64_t n, const Draft *d, const uint8_t *shared, int64_t shared_bytes,
    uint8_t *to, int64_t *sizes, uint8_t *moves,
) noexcept nogil:
    cdef int64_t i, at = 0, body_bytes, own_bytes, kept, whole, props
    cdef bint between, parted
    cdef uint8_t *place
    for i in range(n):
        body_bytes = get32(p + at + 16)
        own_bytes = (<int64_t>p[at + 20 + body_bytes] << 8) | p[at + 21 + body_bytes]
        props = joined_bytes(
            p + at + ITEM + body_bytes, own_bytes, shared, shared_bytes, &between, &kept, &parted,
            &whole,
        )
        sizes[i] = d.head_bytes + body_bytes + 1 + d.topic_bytes + 2 + props
        place = put_head(to, d, sizes[i], <int32_t>get32(p + at + 12), p + at + 20, body_bytes)
        place = put_length(place, props)
        memcpy(place, p + at + ITEM + body_bytes, own_bytes)
        if between:
            place[own_bytes] = 2
        memcpy(place + own_bytes + between, shared, shared_bytes)
        if props > whole:
            put_mark(place + whole, parted)
        moves[i] = has_name(place, 0, whole, "DELAY\x01", 6) or has_name(place, 0, whole, "TRAN_MSG\x01", 9)
        to += sizes[i]
        at += ITEM + body_bytes + own_bytes


def batch(
    encoded, bytes shared, bytes topic, int32_t queue_id, int32_t sys_flag, int64_t born_ms,
    bytes born_host, int32_t reconsume_times, int64_t count_max, int64_t bytes_max,
):
    """See kernel_python.batch."""
    cdef Column data = Column(encoded, PyBUF_SIMPLE)
    cdef const uint8_t *shared_at = shared
    cdef int64_t shared_bytes = len(shared), n = 0, total = 0
    cdef Draft d
    d.topic, d.topic_bytes = topic, len(topic)
    d.host, d.host_bytes = born_host, len(born_host)
    d.born_ms, d.prepared, d.queue_id, d.sys_flag = born_ms, 0, queue_id, sys_flag
    d.reconsume_times = reconsume_times
    if not 0 < d.topic_bytes <= 127 or (d.host_bytes != 8 and d.host_bytes != 20):
        raise ValueError("a topic has 1 to 127 bytes, a host 8 or 20")
    if not shared_bytes:
        raise ValueError("a batch shares at least one property")
    describe(&d, False)
    problem = measure_batch(
        data.at, data.size, &d, shared_at, shared_bytes, count_max, bytes_max, &n, &total
    )
    if problem:
        return bytearray(), bytearray(), bytearray(), problem, n
    records = PyByteArray_FromStringAndSize(NULL, total)
    sizes = PyByteArray_FromStringAndSize(NULL, n * 8)
    moves = PyByteArray_FromStringAndSize(NULL, n)
    put_batch(
        data.at, n, &d, shared_at, shared_bytes, <uint8_t *>PyByteArray_AsString(records),
        <int64_t *>PyByteArray_AsString(sizes), <uint8_t *>PyByteArray_AsString(moves),
    )
    return records, sizes, moves, 0, n


cdef struct Change:
    const uint8_t *name
    int64_t name_bytes
    const uint8_t *value
    int64_t value_bytes  # -1: the property is removed
    bint done


cdef bint is_plain(const uint8_t *p, int64_t n) noexcept nogil:
    """True if the bytes are ASCII, not empty, and without a separator."""
    cdef int64_t i
    for i in range(n):
        if p[i] > 127 or p[i] == 1 or p[i] == 2:
            return False
    return n > 0


cdef int64_t edited(
    const uint8_t *p, int64_t length, Change *changes, int64_t m, uint8_t *to
) noexcept nogil:
    """Write the changed properties; returns the size, or -1 for what Python has to do."""
    cdef int64_t at = 0, n = 0, stop, name_end, i, seen = 0
    cdef int64_t names_at[EDITED_MAX]
    cdef int64_t names_bytes[EDITED_MAX]
    cdef Change *change
    if length and p[length - 1] == 2:
        length -= 1
        if not length:
            return -1
    while at < length:
        stop = at
        while stop < length and p[stop] != 2:
            stop += 1
        name_end = at
        while name_end < stop and p[name_end] != 1:
            name_end += 1
        if name_end == stop or seen == EDITED_MAX:
            return -1
        if not is_plain(p + at, name_end - at) or not is_plain(p + name_end + 1, stop - name_end - 1):
            return -1
        for i in range(seen):
            if names_bytes[i] == name_end - at and memcmp(p + names_at[i], p + at, name_end - at) == 0:
                return -1
        names_at[seen], names_bytes[seen] = at, name_end - at
        seen += 1
        change = NULL
        for i in range(m):
            if changes[i].name_bytes == name_end - at and memcmp(changes[i].name, p + at, name_end - at) == 0:
                change = changes + i
        if change != NULL and change.value_bytes >= 0:
            n = put_property(to, n, change)
        elif change == NULL and not (name_end - at == 8 and memcmp(p + at, MARK, 8) == 0):
            if n:
                to[n] = 2
                n += 1
            memcpy(to + n, p + at, stop - at)
            n += stop - at
        if change != NULL:
            change.done = True
        at = stop + 1
        if at == length:
            return -1  # it ends in two separators
    for i in range(m):
        if not changes[i].done and changes[i].value_bytes >= 0:
            n = put_property(to, n, changes + i)
    return n


cdef int64_t put_property(uint8_t *to, int64_t n, const Change *change) noexcept nogil:
    if n:
        to[n] = 2
        n += 1
    memcpy(to + n, change.name, change.name_bytes)
    n += change.name_bytes
    to[n] = 1
    memcpy(to + n + 1, change.value, change.value_bytes)
    return n + 1 + change.value_bytes


cdef int64_t read_changes(tuple changes, Change *made) except -2:
    """How many bytes the changes may add; -1 for changes that the Python kernel has to make."""
    cdef int64_t m = len(changes), i, room = 0
    cdef bytes name, value
    if m > CHANGES_MAX:
        return -1
    for i in range(m):
        name, value = changes[i]
        made[i].name, made[i].name_bytes = name, len(name)
        made[i].value_bytes = -1
        made[i].done = False
        if value is not None:
            made[i].value, made[i].value_bytes = value, len(value)
            if not is_plain(made[i].value, made[i].value_bytes):
                return -1
            room += made[i].name_bytes + made[i].value_bytes + 2
    return room


def edit(properties, tuple changes):
    """See kernel_python.edit; None for properties that the Python kernel has to edit."""
    cdef Column text = Column(properties, PyBUF_SIMPLE)
    cdef Change made[CHANGES_MAX]
    cdef int64_t n, room = read_changes(changes, made)
    if room < 0:
        return None
    to = PyByteArray_FromStringAndSize(NULL, text.size + room)
    n = edited(text.at, text.size, made, len(changes), <uint8_t *>PyByteArray_AsString(to))
    if n < 0:
        return None
    return PyBytes_FromStringAndSize(PyByteArray_AsString(to), n)


cdef void put_moved(
    uint8_t *to, const uint8_t *p, const Parts *r, int64_t size, int32_t queue_id, uint32_t sys_flag,
    const uint8_t *topic, int64_t topic_bytes, const uint8_t *text, int64_t kept, int64_t length,
    bint parted,
) noexcept nogil:
    memcpy(to, p, r.body_end)
    put32(to, <uint32_t>size)
    put32(to + 12, <uint32_t>queue_id)
    memset(to + 20, 0, 16)  # queue offset and position
    put32(to + 36, sys_flag)
    memset(to + r.stored_at, 0, r.body_at - 16 - r.stored_at)  # store time and host
    to += r.body_end
    to[0] = <uint8_t>topic_bytes
    memcpy(to + 1, topic, topic_bytes)
    to = put_length(to + 1 + topic_bytes, length)
    memcpy(to, text, kept)
    if length > kept:
        put_mark(to + kept, parted)


def move(
    record, bytes topic, int32_t queue_id, tuple changes, int32_t cleared, int32_t added,
    int32_t reconsume_times, int64_t prepared,
):
    """See kernel_python.move; None for properties that the Python kernel has to edit."""
    cdef Column data = Column(record, PyBUF_SIMPLE)
    cdef Change made[CHANGES_MAX]
    cdef int64_t n, size, length, kept = 0, props_at, topic_bytes = len(topic)
    cdef int64_t room = read_changes(changes, made)
    cdef bint parted = False
    cdef uint8_t *text
    cdef uint8_t *to
    cdef Parts r
    if not parse(data.at, 0, data.size, &r) or r.size != data.size:
        raise ValueError("these bytes are no record")
    if not 0 < topic_bytes <= 127:
        raise ValueError("a topic has 1 to 127 bytes")
    if room < 0:
        return None
    props_at = r.topic_end + 2
    edits = PyByteArray_FromStringAndSize(NULL, r.size - props_at + room)
    text = <uint8_t *>PyByteArray_AsString(edits)
    n = edited(data.at + props_at, r.size - props_at, made, len(changes), text)
    if n < 0:
        return None
    length = marked_bytes(text, n, &kept, &parted)
    size = r.body_end + 1 + topic_bytes + 2 + length
    if length > PROPERTIES_MAX or size > 0x7FFFFFFF:
        return None
    moved = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t *>PyBytes_AsString(moved)
    put_moved(
        to, data.at, &r, size, queue_id, (r.sys_flag & ~<uint32_t>cleared) | <uint32_t>added, topic,
        topic_bytes, text, kept, length, parted,
    )
    if reconsume_times >= 0:
        put32(to + r.body_at - 16, <uint32_t>reconsume_times)
    put64(to + r.body_at - 12, prepared)
    return moved


# -- stored records -------------------------------------------------------------------------------


cdef bint resembles_mark(const uint8_t *p) noexcept nogil:
    """True if these twenty bytes are a checksum property with at most two wrong bytes."""
    cdef int i, same = 0
    if memcmp(p, "__", 2) != 0 and p[CRC_BYTES - 1] != 2 and memcmp(p + 2, "CRC32#", 6) != 0:
        return False
    for i in range(MARK_BYTES):
        same += p[i] == <uint8_t>MARK[i]
    for i in range(MARK_BYTES, CRC_BYTES - 1):
        same += 48 <= p[i] <= 57
    same += p[CRC_BYTES - 1] == 2
    return same >= CRC_BYTES - 2


cdef void put_digits(uint8_t *p, uint32_t crc) noexcept nogil:
    cdef int i
    for i in range(10):
        p[i] = 48 + crc % 10
        crc //= 10
    p[10] = 2


cdef int holds(const uint8_t *p, int64_t at, const Parts *r) noexcept nogil:
    """1 if the record's checksum matches, 0 if not, 2 if only the body has one, which matches."""
    cdef int64_t end = at + r.size, mark = end - CRC_BYTES
    cdef uint8_t digits[11]
    if mark >= r.topic_end + 2:
        if memcmp(p + mark, MARK, MARK_BYTES) == 0:
            put_digits(digits, crc32_of(p + at, mark - at) & CRC_MASK)
            return memcmp(p + mark + MARK_BYTES, digits, 11) == 0
        if resembles_mark(p + mark):
            return 0
    if crc32_of(p + r.body_at, r.body_end - r.body_at) & CRC_MASK != get32(p + at + 8):
        return 0
    return 2


cdef void verify_all(
    const uint8_t *p, int64_t length, const int64_t *starts, const int64_t *sizes, int64_t n,
    const int64_t *positions, const uint8_t *topic, int64_t topic_bytes, int64_t queue_id,
    const int64_t *offsets, int64_t base, int64_t first_offset, uint8_t *good,
) noexcept nogil:
    cdef int64_t i, at, offset
    cdef Parts r
    for i in range(n):
        good[i] = 0
        at = <int64_t>(<uint64_t>starts[i] - <uint64_t>base)
        if at < 0 or sizes[i] < 0 or at > length or sizes[i] > length - at:
            continue
        if not parse(p, at, at + sizes[i], &r) or r.size != sizes[i]:
            continue
        if positions != NULL and get64(p + at + 28) != positions[i]:
            continue
        if topic != NULL:
            offset = <int64_t>(<uint64_t>offsets[i] + <uint64_t>first_offset)
            if <int32_t>get32(p + at + 12) != queue_id or get64(p + at + 20) != offset:
                continue
            if r.topic_end - r.body_end - 1 != topic_bytes:
                continue
            if memcmp(p + r.body_end + 1, topic, topic_bytes) != 0:
                continue
        good[i] = holds(p, at, &r)


def verify(
    records, starts, sizes, positions=None, topic=None, int64_t queue_id=0, offsets=None,
    int64_t base=0, int64_t first_offset=0,
):
    """See kernel_python.verify."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column at = Column(starts, PyBUF_SIMPLE)
    cdef int64_t n = at.size // 8
    cdef Column size = Column(sizes, PyBUF_SIMPLE, n)
    cdef Column position, name, offset
    cdef const int64_t *places = NULL
    cdef const int64_t *numbers = NULL
    cdef const uint8_t *name_at = NULL
    cdef int64_t name_bytes = 0
    if positions is not None:
        position = Column(positions, PyBUF_SIMPLE, n)
        places = position.values
    if topic is not None:
        name = Column(topic, PyBUF_SIMPLE)
        name_at, name_bytes = name.at, name.size
        offset = Column(offsets, PyBUF_SIMPLE, n)
        numbers = offset.values
    good = PyByteArray_FromStringAndSize(NULL, n)
    verify_all(
        data.at, data.size, at.values, size.values, n, places, name_at, name_bytes, queue_id,
        numbers, base, first_offset, <uint8_t *>PyByteArray_AsString(good),
    )
    return good


# -- stamping -------------------------------------------------------------------------------------


cdef void stamp_draft(
    uint8_t *p, int64_t at, const Parts *r, int64_t queue_offset, int64_t position, int64_t store_ms,
    const uint8_t *host, int64_t host_bytes,
) noexcept nogil:
    cdef int64_t end = at + r.size
    put64(p + at + 20, queue_offset)
    put64(p + at + 28, position)
    put64(p + r.stored_at, store_ms)
    if r.sys_flag & STORE_V6 and host_bytes == 8:
        memset(p + r.stored_at + 8, 0, 10)
        memset(p + r.stored_at + 18, 255, 2)
        memcpy(p + r.stored_at + 20, host, 8)
    else:
        memcpy(p + r.stored_at + 8, host, host_bytes)
    if is_marked(p, r.topic_end + 2, end):
        put_digits(p + end - CRC_BYTES + MARK_BYTES, crc32_of(p + at, end - CRC_BYTES - at) & CRC_MASK)


cdef int read_drafts(
    const uint8_t *p, int64_t length, const int64_t *sizes, int64_t n, const int64_t *target_of,
    int64_t targets, bint wide_host, int64_t *table, int64_t *bad,
) noexcept nogil:
    """0 if all can be stamped, else the problem of draft `bad`."""
    cdef int64_t i, at = 0
    cdef Parts r
    for i in range(n):
        bad[0] = i
        if sizes[i] > length - at or not parse(p, at, at + sizes[i], &r) or r.size != sizes[i]:
            return 1
        if wide_host and not r.sys_flag & STORE_V6:
            return 8
        if target_of != NULL and (target_of[i] < 0 or target_of[i] >= targets):
            return -1
        fill(p, at, &r, table + i, n)
        at += r.size
    bad[0] = n
    return 0 if at == length else 1


cdef int place_all(
    const int64_t *sizes, int64_t n, int64_t *end, int64_t limit, int64_t segment,
    int64_t *positions, int64_t *bad,
) noexcept nogil:
    """Positions after `end`, each record inside one segment; advances `end`. 0, or the problem."""
    cdef int64_t i, left
    for i in range(n):
        bad[0] = i
        if sizes[i] > segment - TAIL:
            return 6
        left = segment - end[0] % segment
        if sizes[i] + TAIL > left:
            end[0] += left
        positions[i] = end[0]
        end[0] += sizes[i]
    bad[0] = 0
    return 7 if end[0] > limit else 0


cdef void stamp_all(
    uint8_t *p, int64_t *table, int64_t n, const int64_t *target_of, int64_t *next_offsets,
    int64_t store_ms, const uint8_t *host, int64_t host_bytes,
) noexcept nogil:
    cdef int64_t i, target = 0
    cdef Parts r
    for i in range(n):
        if target_of != NULL:
            target = target_of[i]
        table[5 * n + i] = next_offsets[target]
        next_offsets[target] += 1
        table[9 * n + i] = store_ms
        parse(p, table[i], table[i] + table[n + i], &r)
        stamp_draft(
            p, table[i], &r, table[5 * n + i], table[6 * n + i], store_ms, host, host_bytes
        )


cdef bint have_room(const int64_t *offsets, int64_t count, int64_t n) noexcept nogil:
    """True if each of these queues has offsets for `n` more records."""
    cdef int64_t i
    for i in range(count):
        if offsets[i] > INT64_MAX - n:
            return False
    return True


cdef int64_t run_end(
    const int64_t *positions, const int64_t *sizes, int64_t first, int64_t n
) noexcept nogil:
    """The first record from `first` + 1 on that is not adjacent to the one before."""
    first += 1
    while first < n and positions[first] == positions[first - 1] + sizes[first - 1]:
        first += 1
    return first


def append(
    records, sizes, target_of, next_offsets, int64_t end, int64_t limit, int64_t segment_size,
    int64_t store_ms, bytes host,
):
    """See kernel_python.append."""
    cdef Column data = Column(records, PyBUF_WRITABLE)
    cdef Column size = Column(sizes, PyBUF_SIMPLE)
    cdef Column ends = Column(next_offsets, PyBUF_WRITABLE, 1)
    cdef int64_t n = size.size // 8, host_bytes = len(host), bad = 0, first = 0, behind = end, last
    cdef Column targets
    cdef const int64_t *target_at = NULL
    cdef const uint8_t *host_at = host
    if not have_room(ends.values, ends.size // 8, n):
        raise ValueError("a queue has no offsets left")
    if host_bytes != 8 and host_bytes != 20:
        raise ValueError("a host has 8 or 20 bytes")
    if segment_size <= TAIL or end < 0:
        raise ValueError("no place in a segment")
    if target_of is not None:
        targets = Column(target_of, PyBUF_SIMPLE, n)
        target_at = targets.values
    table = PyByteArray_FromStringAndSize(NULL, n * FIELDS * 8)
    cdef int64_t *t = <int64_t *>PyByteArray_AsString(table)
    problem = read_drafts(
        data.at, data.size, size.values, n, target_at, ends.size // 8, host_bytes == 20, t, &bad
    )
    if problem == -1:
        raise ValueError("a record has none of the queues")
    if not problem:
        problem = place_all(size.values, n, &behind, limit, segment_size, t + 6 * n, &bad)
    if problem:
        return bytearray(), [], [], end, problem, bad
    stamp_all(
        data.at, t, n, target_at, <int64_t *>ends.at, store_ms, host_at, host_bytes
    )
    runs, blanks = [], []
    while first < n:
        if t[6 * n + first] != end:
            blanks.append((end, t[6 * n + first] - end))
        last = run_end(t + 6 * n, size.values, first, n)
        runs.append((first, last - first, t[6 * n + first]))
        end = t[6 * n + last - 1] + size.values[last - 1]
        first = last
    return table, runs, blanks, end, 0, 0


# -- projections ----------------------------------------------------------------------------------


cdef inline uint32_t java(const uint8_t *p, int64_t at, int64_t end, uint32_t seed) noexcept nogil:
    while at < end:
        seed = seed * 31 + p[at]
        at += 1
    return seed


cdef inline int32_t index_hash(uint32_t value) noexcept nogil:
    """Java's Math.abs, and 0 for the one number without an absolute value."""
    if value == 0x80000000u:
        return 0
    return <int32_t>(0u - value) if value > 0x80000000u else <int32_t>value


cdef bint is_ascii(const uint8_t *p, int64_t at, int64_t end) noexcept nogil:
    while at < end:
        if p[at] > 127:
            return False
        at += 1
    return True


cdef struct Labels:
    int64_t tag_at
    int64_t tag_end
    int64_t unique_at
    int64_t unique_end
    int64_t keys_at
    int64_t keys_end


cdef void find_labels(const uint8_t *p, int64_t at, int64_t end, Labels *found) noexcept nogil:
    """The last non-empty value of each of TAGS, UNIQ_KEY and KEYS."""
    cdef int64_t stop
    memset(found, 0, sizeof(Labels))
    while at < end:
        stop = at
        while stop < end and p[stop] != 2:
            stop += 1
        if names(p, at, stop, "UNIQ_KEY\x01", 9):
            if stop - at > 9:
                found.unique_at = at + 9
                found.unique_end = stop
        elif names(p, at, stop, "TAGS\x01", 5):
            if stop - at > 5:
                found.tag_at = at + 5
                found.tag_end = stop
        elif names(p, at, stop, "KEYS\x01", 5):
            if stop - at > 5:
                found.keys_at = at + 5
                found.keys_end = stop
        at = stop + 1


cdef int64_t count_keys(const uint8_t *p, int64_t at, int64_t end) noexcept nogil:
    cdef int64_t n = 0
    cdef bint inside = False
    while at < end:
        if p[at] == 32:
            inside = False
        elif not inside:
            inside = True
            n += 1
        at += 1
    return n


cdef int64_t count_all(
    const uint8_t *p, int64_t length, const int64_t *table, int64_t n
) noexcept nogil:
    """The number of indexed keys; -1 if a label or topic is not ASCII, -2 for an invalid table."""
    cdef int64_t i, end, total = 0
    cdef Labels found
    if not places_hold(length, table, n):
        return -2
    for i in range(n):
        if table[i] < 0 or table[i] > length or table[n + i] > length - table[i]:
            return -2
        end = table[i] + table[n + i]
        if table[14 * n + i] + 2 > end:
            return -2
        if not is_ascii(p, table[13 * n + i] + 1, table[14 * n + i]):
            return -1
        find_labels(p, table[14 * n + i] + 2, end, &found)
        if not is_ascii(p, found.tag_at, found.tag_end):
            return -1
        if not is_ascii(p, found.unique_at, found.unique_end):
            return -1
        if not is_ascii(p, found.keys_at, found.keys_end):
            return -1
        if table[7 * n + i] & TRANSACTION == ROLLBACK:
            continue
        total += found.unique_end > found.unique_at
        total += count_keys(p, found.keys_at, found.keys_end)
    return total


cdef void project_all(
    const uint8_t *p, const int64_t *table, int64_t n, int64_t *codes, int32_t *hashes,
    int64_t *positions, int64_t *store_ms,
) noexcept nogil:
    cdef int64_t i, at, stop, key = 0
    cdef uint32_t seed
    cdef Labels found
    for i in range(n):
        find_labels(p, table[14 * n + i] + 2, table[i] + table[n + i], &found)
        codes[i] = <int32_t>java(p, found.tag_at, found.tag_end, 0)
        if table[7 * n + i] & TRANSACTION == ROLLBACK:
            continue
        seed = java(p, table[13 * n + i] + 1, table[14 * n + i], 0) * 31 + 35
        if found.unique_end > found.unique_at:
            hashes[key] = index_hash(java(p, found.unique_at, found.unique_end, seed))
            positions[key] = table[6 * n + i]
            store_ms[key] = table[9 * n + i]
            key += 1
        at = found.keys_at
        while at < found.keys_end:
            stop = at
            while stop < found.keys_end and p[stop] != 32:
                stop += 1
            if stop > at:
                hashes[key] = index_hash(java(p, at, stop, seed))
                positions[key] = table[6 * n + i]
                store_ms[key] = table[9 * n + i]
                key += 1
            at = stop + 1


def project(records, table):
    """See kernel_python.project."""
    cdef Column data = Column(records, PyBUF_SIMPLE)
    cdef Column columns = Column(table, PyBUF_SIMPLE)
    cdef int64_t n = columns.size // (8 * FIELDS)
    cdef int64_t keys = count_all(data.at, data.size, columns.values, n)
    if keys == -2:
        raise ValueError("the table is not that of these records")
    if keys < 0:
        return None
    codes = PyByteArray_FromStringAndSize(NULL, n * 8)
    hashes = PyByteArray_FromStringAndSize(NULL, keys * 4)
    positions = PyByteArray_FromStringAndSize(NULL, keys * 8)
    store_ms = PyByteArray_FromStringAndSize(NULL, keys * 8)
    project_all(
        data.at, columns.values, n, <int64_t *>PyByteArray_AsString(codes),
        <int32_t *>PyByteArray_AsString(hashes), <int64_t *>PyByteArray_AsString(positions),
        <int64_t *>PyByteArray_AsString(store_ms),
    )
    return codes, hashes, positions, store_ms


# -- key index ------------------------------------------------------------------------------------


cdef struct Head:
    int32_t place  # -1: none
    int32_t number


cdef Head *head_of(Head *heads, int64_t mask, int32_t place) noexcept nogil:
    """The place for the newest entry of a slot; the table is at most half full."""
    cdef int64_t at = (<uint32_t>place * 2654435761u) & mask
    while heads[at].place >= 0 and heads[at].place != place:
        at = (at + 1) & mask
    return heads + at


cdef int64_t put_entries(
    const int32_t *hashes, const int64_t *positions, const int64_t *store_ms, int64_t n,
    const int32_t *slots, int64_t slot_count, int32_t number, int64_t begin_ms,
    Head *heads, int64_t mask, uint8_t *to,
) noexcept nogil:
    """Write the entries; returns how many are the first of their slot, -1 for a negative hash."""
    cdef int64_t i, seconds, used = 0
    cdef int32_t previous
    cdef Head *head
    for i in range(n):
        if hashes[i] < 0:
            return -1
        head = head_of(heads, mask, <int32_t>(hashes[i] % slot_count))
        previous = head.number if head.place >= 0 else slots[hashes[i] % slot_count]
        head.place = <int32_t>(hashes[i] % slot_count)
        head.number = number
        seconds = 0
        if begin_ms > 0 and store_ms[i] > begin_ms:
            seconds = (store_ms[i] - begin_ms) // 1000
        if seconds > SECONDS_MAX:
            seconds = SECONDS_MAX
        put32(to, <uint32_t>hashes[i])
        put64(to + 4, positions[i])
        put32(to + 12, <uint32_t>seconds)
        put32(to + 16, <uint32_t>previous)
        used += previous == 0
        if number == 1:
            begin_ms = store_ms[i]
        number += 1
        to += ENTRY
    return used


def index_entries(hashes, positions, store_ms, slots, int64_t number, int64_t begin_ms):
    """See kernel_python.index_entries."""
    cdef Column keys = Column(hashes, PyBUF_SIMPLE)
    cdef int64_t n = keys.size // 4, room = 2, used
    cdef Column position = Column(positions, PyBUF_SIMPLE, n)
    cdef Column stored = Column(store_ms, PyBUF_SIMPLE, n)
    cdef Column slot = Column(slots, PyBUF_SIMPLE)
    if slot.size < 4 or slot.size // 4 > SECONDS_MAX or number < 1 or number + n > SECONDS_MAX:
        raise ValueError("no place in an index file")
    while room < 2 * n:
        room *= 2
    heads = PyByteArray_FromStringAndSize(NULL, room * sizeof(Head))
    memset(PyByteArray_AsString(heads), 255, room * sizeof(Head))
    entries = PyBytes_FromStringAndSize(NULL, n * ENTRY)
    used = put_entries(
        <const int32_t *>keys.at, position.values, stored.values, n, <const int32_t *>slot.at,
        slot.size // 4, <int32_t>number, begin_ms, <Head *>PyByteArray_AsString(heads), room - 1,
        <uint8_t *>PyBytes_AsString(entries),
    )
    if used < 0:
        raise ValueError("a hash is negative")
    return entries, used


cdef bint link_all(
    const int32_t *hashes, int64_t n, int32_t number, int32_t *slots, int64_t slot_count,
    uint8_t *pages, int64_t page_slots,
) noexcept nogil:
    cdef int64_t i, place
    for i in range(n):
        if hashes[i] < 0:
            return False
        place = hashes[i] % slot_count
        slots[place] = number + <int32_t>i
        pages[place // page_slots] = 1
    return True


def link_slots(hashes, int64_t number, slots, pages, int64_t page_slots):
    """See kernel_python.link_slots."""
    cdef Column keys = Column(hashes, PyBUF_SIMPLE)
    cdef Column slot = Column(slots, PyBUF_WRITABLE)
    cdef Column page = Column(pages, PyBUF_WRITABLE)
    cdef int64_t n = keys.size // 4
    if slot.size < 4 or page_slots < 1 or (slot.size // 4 - 1) // page_slots >= page.size:
        raise ValueError("the pages are not those of these slots")
    if number < 1 or number + n > SECONDS_MAX:
        raise ValueError("no place in an index file")
    if not link_all(
        <const int32_t *>keys.at, n, <int32_t>number, <int32_t *>slot.at, slot.size // 4,
        page.at, page_slots,
    ):
        raise ValueError("a hash is negative")


# -- queue units ----------------------------------------------------------------------------------


cdef bint is_visible(int64_t queue_id, int64_t sys_flag) noexcept nogil:
    """True if a consume queue has this record: not for halves of uncommitted transactions."""
    return queue_id >= 0 and (sys_flag & TRANSACTION == 0 or sys_flag & TRANSACTION == 8)


cdef void fill_units(
    const int64_t *table, const int64_t *codes, const int64_t *group_of, int64_t n, int64_t *cursors,
    uint8_t *units, int64_t *offsets,
) noexcept nogil:
    cdef int64_t i, to
    for i in range(n):
        if group_of[i] < 0:
            continue
        to = cursors[group_of[i]]
        cursors[group_of[i]] = to + 1
        put64(units + to * 20, table[6 * n + i])
        put32(units + to * 20 + 8, <uint32_t>table[n + i])
        put64(units + to * 20 + 12, codes[i])
        offsets[to] = table[5 * n + i]


cdef bint is_run(const int64_t *offsets, int64_t n) noexcept nogil:
    """True if the offsets are consecutive."""
    cdef int64_t i
    for i in range(1, n):
        if offsets[i - 1] == INT64_MAX or offsets[i] != offsets[i - 1] + 1:
            return False
    return True


def queue_units(table, codes, topic_of=None):
    """See kernel_python.queue_units."""
    cdef Column columns = Column(table, PyBUF_SIMPLE)
    cdef int64_t n = columns.size // (8 * FIELDS), i, queue_id, topic = 0
    cdef int64_t group = -1, last_queue = -1, last_topic = -1, refused = 0, first = 0, count
    cdef const int64_t *t = columns.values
    cdef Column code = Column(codes, PyBUF_SIMPLE, n)
    cdef Column topics
    cdef const int64_t *topic_at = NULL
    cdef const uint8_t *end
    cdef dict numbers = {}
    cdef list keys = []
    if topic_of is not None:
        topics = Column(topic_of, PyBUF_SIMPLE, n)
        topic_at = topics.values
    group_of = PyByteArray_FromStringAndSize(NULL, n * 8)
    counts = PyByteArray_FromStringAndSize(NULL, n * 8)
    cdef int64_t *groups = <int64_t *>PyByteArray_AsString(group_of)
    cdef int64_t *cursors = <int64_t *>PyByteArray_AsString(counts)
    for i in range(n):
        queue_id = t[3 * n + i]
        if not is_visible(queue_id, t[7 * n + i]):
            refused += queue_id < 0
            groups[i] = -1
            continue
        if topic_at != NULL:
            topic = topic_at[i]
        if group < 0 or queue_id != last_queue or topic != last_topic:
            key = (topic, queue_id)
            found = numbers.get(key)
            if found is None:
                numbers[key] = group = len(keys)
                keys.append(key)
                cursors[group] = 0
            else:
                group = found
            last_queue, last_topic = queue_id, topic
        groups[i] = group
        cursors[group] += 1
    for i in range(len(keys)):
        count = cursors[i]
        cursors[i] = first
        first += count
    units = PyByteArray_FromStringAndSize(NULL, first * 20)
    offsets = PyByteArray_FromStringAndSize(NULL, first * 8)
    cdef const uint8_t *unit = <const uint8_t *>PyByteArray_AsString(units)
    cdef const int64_t *offset = <const int64_t *>PyByteArray_AsString(offsets)
    fill_units(
        t, code.values, groups, n, cursors, <uint8_t *>PyByteArray_AsString(units),
        <int64_t *>PyByteArray_AsString(offsets),
    )
    cdef list found_groups = []
    first = 0
    for i in range(len(keys)):
        count = cursors[i] - first  # a cursor is after the last unit of its group now
        end = unit + (first + count - 1) * 20
        found_groups.append((
            *keys[i], count, offset[first] if is_run(offset + first, count) else -1,
            get64(unit + first * 20), (<object>get64(end)) + get32(end + 8),
        ))
        first += count
    return units, offsets, found_groups, refused


# -- signed headers -------------------------------------------------------------------------------


cdef struct HeaderField:
    const uint8_t *name
    int64_t name_bytes
    const uint8_t *value  # as in JSON, between its quotes
    int64_t value_bytes


cdef struct SignedParts:
    int64_t text_bytes  # the text is at 0, the access key is a part of it, the signature follows it
    int64_t key_at
    int64_t key_bytes
    int64_t signature_bytes


cdef int64_t text_end(const uint8_t *p, int64_t at, int64_t end) noexcept nogil:
    """The index of the quote behind a text that begins at `at`; -1 if there is none, or for a byte
    that Python has to read.
    """
    while at < end:
        if p[at] == QUOTE:
            return at
        if p[at] < 32 or p[at] > 126:
            return -1
        at += 2 if p[at] == BACKSLASH else 1
    return -1


cdef bint is_called(const HeaderField *field, const char *name, int64_t n) noexcept nogil:
    return field.name_bytes == n and memcmp(field.name, name, n) == 0


cdef int order_of(const HeaderField *one, const HeaderField *other) noexcept nogil:
    """Below, at or above 0 as the first name is before, like or after the other."""
    cdef int64_t n = one.name_bytes if one.name_bytes < other.name_bytes else other.name_bytes
    cdef int found = memcmp(one.name, other.name, n)
    if found != 0:
        return found
    if one.name_bytes == other.name_bytes:
        return 0
    return -1 if one.name_bytes < other.name_bytes else 1


cdef bint sort_fields(HeaderField *fields, int64_t n) noexcept nogil:
    """Sort by name; False if a name occurs twice. Clients send most fields in this order."""
    cdef int64_t i, at
    cdef int order
    cdef HeaderField moved
    for i in range(1, n):
        moved = fields[i]
        at = i
        while at > 0:
            order = order_of(&moved, fields + at - 1)
            if order == 0:
                return False
            if order > 0:
                break
            fields[at] = fields[at - 1]
            at -= 1
        fields[at] = moved
    return True


cdef int64_t read_fields(
    const uint8_t *p, int64_t at, int64_t end, HeaderField *fields, int64_t *n
) noexcept nogil:
    """Read `"name":"value",...}` from `at`; returns the index behind the brace, or -1."""
    cdef int64_t name_at, name_end, value_end
    n[0] = 0
    while at < end and p[at] == QUOTE:
        name_at = at + 1
        name_end = text_end(p, name_at, end)
        if name_end < 0 or end - name_end < 3 or n[0] == SIGNED_MAX:
            return -1
        if p[name_end + 1] != COLON or p[name_end + 2] != QUOTE:
            return -1
        if memchr(p + name_at, BACKSLASH, name_end - name_at) != NULL:
            return -1
        value_end = text_end(p, name_end + 3, end)
        if value_end < 0 or value_end + 1 >= end:
            return -1
        fields[n[0]].name = p + name_at
        fields[n[0]].name_bytes = name_end - name_at
        fields[n[0]].value = p + name_end + 3
        fields[n[0]].value_bytes = value_end - name_end - 3
        n[0] += 1
        at = value_end + 2
        if p[value_end + 1] == CLOSE:
            return at
        if p[value_end + 1] != COMMA:
            return -1
    return -1


cdef bint is_integer(const uint8_t *p, int64_t n) noexcept nogil:
    cdef int64_t at = 1 if n > 0 and p[0] == 45 else 0  # minus
    if at == n or n > 18 or (p[at] == 48 and n - at > 1):
        return False
    while at < n:
        if p[at] < 48 or p[at] > 57:
            return False
        at += 1
    return True


cdef int64_t skip_value(const uint8_t *p, int64_t at, int64_t end) noexcept nogil:
    """The index behind a text without escapes, an integer or null; -1 for any other value."""
    cdef int64_t value_end
    if p[at] == QUOTE:
        value_end = text_end(p, at + 1, end)
        if value_end < 0 or memchr(p + at, BACKSLASH, value_end - at) != NULL:
            return -1
        return value_end + 1
    value_end = at
    while value_end < end and p[value_end] != COMMA and p[value_end] != CLOSE:
        value_end += 1
    if value_end - at == 4 and memcmp(p + at, NULL_VALUE, 4) == 0:
        return value_end
    return value_end if is_integer(p + at, value_end - at) else -1


cdef int64_t fields_of_header(const uint8_t *p, int64_t end, HeaderField *fields) noexcept nogil:
    """Read the extension fields of a JSON header; returns their number, -1 for what Python has to
    read.
    """
    cdef int64_t at = 1, n = -1, name_at, name_end
    if end < 1 or p[0] != OPEN:
        return -1
    while at < end and p[at] == QUOTE:
        name_at = at + 1
        name_end = text_end(p, name_at, end)
        if name_end < 0 or end - name_end < 3 or p[name_end + 1] != COLON:
            return -1
        if memchr(p + name_at, BACKSLASH, name_end - name_at) != NULL:
            return -1
        at = name_end + 2
        if name_end - name_at == 9 and memcmp(p + name_at, FIELDS_NAME, 9) == 0:
            if n >= 0 or p[at] != OPEN:
                return -1
            at = read_fields(p, at + 1, end, fields, &n)
        else:
            at = skip_value(p, at, end)
        if at < 0 or at >= end:
            return -1
        if p[at] == CLOSE:
            return n if at + 1 == end else -1
        if p[at] != COMMA:
            return -1
        at += 1
    return -1


cdef int hex_value(uint8_t digit) noexcept nogil:
    if 48 <= digit <= 57:
        return digit - 48
    if 97 <= digit <= 102:
        return digit - 87
    if 65 <= digit <= 70:
        return digit - 55
    return -1


cdef int escaped(const uint8_t *p, int64_t n, int64_t *used) noexcept nogil:
    """The code point of the escape that begins with the backslash at `p`, and its bytes; -1 for
    what Python has to read.
    """
    cdef int code = 0, digit
    cdef int64_t i
    if n < 2:
        return -1
    used[0] = 2
    if p[1] == QUOTE or p[1] == BACKSLASH or p[1] == 47:
        return p[1]
    if p[1] == 98:  # b
        return 8
    if p[1] == 102:  # f
        return 12
    if p[1] == 110:  # n
        return 10
    if p[1] == 114:  # r
        return 13
    if p[1] == 116:  # t
        return 9
    if p[1] != 117 or n < 6:  # u
        return -1
    used[0] = 6
    for i in range(2, 6):
        digit = hex_value(p[i])
        if digit < 0:
            return -1
        code = code * 16 + digit
    return -1 if 0xD800 <= code <= 0xDFFF else code


cdef int64_t put_value(uint8_t *to, const HeaderField *field) noexcept nogil:
    """Write a value as UTF-8; returns its bytes, which are not more than those in JSON, or -1."""
    cdef int64_t at = 0, n = 0, used = 0
    cdef int code
    while at < field.value_bytes:
        if field.value[at] != BACKSLASH:
            to[n] = field.value[at]
            n += 1
            at += 1
            continue
        code = escaped(field.value + at, field.value_bytes - at, &used)
        if code < 0:
            return -1
        at += used
        if code < 0x80:
            to[n] = <uint8_t>code
            n += 1
        elif code < 0x800:
            to[n] = <uint8_t>(0xC0 | (code >> 6))
            to[n + 1] = <uint8_t>(0x80 | (code & 63))
            n += 2
        else:
            to[n] = <uint8_t>(0xE0 | (code >> 12))
            to[n + 1] = <uint8_t>(0x80 | ((code >> 6) & 63))
            to[n + 2] = <uint8_t>(0x80 | (code & 63))
            n += 3
    return n


cdef bint put_signed(
    const HeaderField *fields, int64_t n, uint8_t *to, SignedParts *found
) noexcept nogil:
    """Write the signed values of sorted fields, then the signature; False for what Python has to
    read, and without an access key.
    """
    cdef int64_t i, size, at = 0
    found.key_bytes = -1
    found.signature_bytes = 0
    for i in range(n):
        size = put_value(to + at, fields + i)
        if size < 0:
            return False
        if is_called(fields + i, "Signature", 9) or is_called(fields + i, "_UNIQUE_KEY_QUERY", 17):
            continue
        if is_called(fields + i, "AccessKey", 9):
            found.key_at = at
            found.key_bytes = size
        at += size
    found.text_bytes = at
    for i in range(n):
        if is_called(fields + i, "Signature", 9):
            found.signature_bytes = put_value(to + at, fields + i)
    return found.key_bytes >= 0 and found.signature_bytes >= 0


def signed_parts(bytes header):
    """See kernel_python.signed_parts; None for a header that the Python kernel has to read."""
    cdef HeaderField fields[SIGNED_MAX]
    cdef uint8_t text[HEADER_MAX]
    cdef SignedParts found
    cdef int64_t size = len(header), n
    if size > HEADER_MAX:
        return None
    n = fields_of_header(<const uint8_t *>PyBytes_AsString(header), size, fields)
    if n < 0 or not sort_fields(fields, n) or not put_signed(fields, n, text, &found):
        return None
    return (
        PyBytes_FromStringAndSize(<const char *>text + found.key_at, found.key_bytes),
        PyBytes_FromStringAndSize(<const char *>text + found.text_bytes, found.signature_bytes),
        PyBytes_FromStringAndSize(<const char *>text, found.text_bytes),
    )
