# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernel: reading, checking, stamping and projecting many records in C.

The twin of kourou.protocol.kernel_python, which says what each function does; kourou.protocol.kernel
chooses between the two. Every loop over records is a `nogil` function, so the compiler refuses a
Python operation in it. No length is used before it was checked against the bytes that are there.

Numbers cross as buffers of native 64-bit integers, one column after the other.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef extern from "crc32.h" nogil:
    void crc32_setup()
    uint32_t crc32_of(const uint8_t *p, size_t n)

VERSION = 1

cdef enum:
    FIXED = 91  # bytes of a record with IPv4 hosts and nothing variable
    HEAD = 88  # of them before the body
    V6_EXTRA = 12
    CRC_BYTES = 20
    MARK_BYTES = 9
    FIELDS = 15
    BORN_V6 = 16
    STORE_V6 = 32
    TRANSACTION = 12
    PROPERTIES_MAX = 32767

cdef uint32_t MAGIC = 0xDAA320A7
cdef uint32_t BLANK_MAGIC = 0xCBD43194
cdef uint32_t CRC_MASK = 0x7FFFFFFF
cdef const char *MARK = "__CRC32#\x01"

crc32_setup()


cdef class Column:
    """The bytes of an object, for as long as this one lives; `values` are them as numbers.

    ValueError if there are fewer than `count` numbers.
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
        PyBuffer_Release(&self.view)  # does nothing for a view that was never taken


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
    """The places in the record at `at`, which must end by `end`; False if it is no record."""
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


# -- checks ---------------------------------------------------------------------------------------


cdef inline bint is_marked(const uint8_t *p, int64_t props_at, int64_t end) noexcept nogil:
    return end - CRC_BYTES >= props_at and memcmp(p + end - CRC_BYTES, MARK, MARK_BYTES) == 0


cdef inline bint names(const uint8_t *p, int64_t at, int64_t end, const char *name, int64_t n) noexcept nogil:
    return end - at >= n and memcmp(p + at, name, n) == 0


cdef bint has_name(const uint8_t *p, int64_t at, int64_t end, const char *name, int64_t n) noexcept nogil:
    """Does `name` stand anywhere in these bytes?"""
    while end - at >= n:
        if p[at] == <uint8_t>name[0] and memcmp(p + at, name, n) == 0:
            return True
        at += 1
    return False


cdef int draft_problem(const uint8_t *p, int64_t at, const Parts *r, int64_t body_max) noexcept nogil:
    """0, or which rule the draft breaks: 2 too large, 3 transactional, 4 no checksum, 5 damaged."""
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
    """0 if all may be stored, else the problem of draft `bad`: 1 its structure, or as above."""
    cdef int64_t i, at = 0
    cdef int problem
    cdef Parts r
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


cdef bint resembles_mark(const uint8_t *p) noexcept nogil:
    """Are these twenty bytes a checksum property with at most two bytes wrong?"""
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
    """1 if the record's checksum holds, 0 if not, 2 if it holds and is that of the body alone."""
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
    const int64_t *offsets, uint8_t *good,
) noexcept nogil:
    cdef int64_t i, at
    cdef Parts r
    for i in range(n):
        good[i] = 0
        at = starts[i]
        if at < 0 or sizes[i] < 0 or at > length or sizes[i] > length - at:
            continue
        if not parse(p, at, at + sizes[i], &r) or r.size != sizes[i]:
            continue
        if positions != NULL and get64(p + at + 28) != positions[i]:
            continue
        if topic != NULL:
            if <int32_t>get32(p + at + 12) != queue_id or get64(p + at + 20) != offsets[i]:
                continue
            if r.topic_end - r.body_end - 1 != topic_bytes:
                continue
            if memcmp(p + r.body_end + 1, topic, topic_bytes) != 0:
                continue
        good[i] = holds(p, at, &r)


def verify(records, starts, sizes, positions=None, topic=None, int64_t queue_id=0, offsets=None):
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
        numbers, <uint8_t *>PyByteArray_AsString(good),
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


cdef int64_t stamp_all(
    uint8_t *p, int64_t length, const int64_t *sizes, const int64_t *offsets, const int64_t *positions,
    const int64_t *queue_ids, int64_t n, int64_t store_ms, const uint8_t *host, int64_t host_bytes,
) noexcept nogil:
    """-1, or the first draft that cannot be stamped; then nothing has changed."""
    cdef int64_t i, at = 0
    cdef Parts r
    for i in range(n):
        if sizes[i] > length - at or not parse(p, at, at + sizes[i], &r) or r.size != sizes[i]:
            return i
        if host_bytes == 20 and not r.sys_flag & STORE_V6:
            return i
        at += r.size
    at = 0
    for i in range(n):
        parse(p, at, length, &r)
        if queue_ids != NULL:
            put32(p + at + 12, <uint32_t>queue_ids[i])
        stamp_draft(p, at, &r, offsets[i], positions[i], store_ms, host, host_bytes)
        at += r.size
    return -1


def stamp(records, sizes, offsets, positions, int64_t store_ms, bytes host, queue_ids=None):
    """See kernel_python.stamp."""
    cdef Column data = Column(records, PyBUF_WRITABLE)
    cdef Column size = Column(sizes, PyBUF_SIMPLE)
    cdef int64_t n = size.size // 8, host_bytes = len(host)
    cdef Column offset = Column(offsets, PyBUF_SIMPLE, n)
    cdef Column position = Column(positions, PyBUF_SIMPLE, n)
    cdef Column queue
    cdef const int64_t *queues = NULL
    cdef const uint8_t *host_at = host
    if host_bytes != 8 and host_bytes != 20:
        raise ValueError("a host has 8 or 20 bytes")
    if queue_ids is not None:
        queue = Column(queue_ids, PyBUF_SIMPLE, n)
        queues = queue.values
    return stamp_all(
        data.at, data.size, size.values, offset.values, position.values, queues, n, store_ms,
        host_at, host_bytes,
    )


# -- projections ----------------------------------------------------------------------------------


cdef inline uint32_t java(const uint8_t *p, int64_t at, int64_t end, uint32_t seed) noexcept nogil:
    while at < end:
        seed = seed * 31 + p[at]
        at += 1
    return seed


cdef inline int32_t index_hash(uint32_t value) noexcept nogil:
    """Java's Math.abs, and 0 for the one number that has no absolute value."""
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
    """The last value that is not empty of TAGS, UNIQ_KEY and KEYS."""
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
    """How many keys all records have; -1 if a label or a topic is not ASCII."""
    cdef int64_t i, end, total = 0
    cdef Labels found
    for i in range(n):
        end = table[i] + table[n + i]
        if table[13 * n + i] < 0 or end > length or table[14 * n + i] + 2 > end:
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
        total += found.unique_end > found.unique_at
        total += count_keys(p, found.keys_at, found.keys_end)
    return total


cdef void project_all(
    const uint8_t *p, const int64_t *table, int64_t n, int64_t *codes, int32_t *hashes, int64_t *rows
) noexcept nogil:
    cdef int64_t i, at, stop
    cdef uint32_t seed
    cdef Labels found
    for i in range(n):
        find_labels(p, table[14 * n + i] + 2, table[i] + table[n + i], &found)
        codes[i] = <int32_t>java(p, found.tag_at, found.tag_end, 0)
        seed = java(p, table[13 * n + i] + 1, table[14 * n + i], 0) * 31 + 35
        if found.unique_end > found.unique_at:
            hashes[0] = index_hash(java(p, found.unique_at, found.unique_end, seed))
            rows[0] = i
            hashes += 1
            rows += 1
        at = found.keys_at
        while at < found.keys_end:
            stop = at
            while stop < found.keys_end and p[stop] != 32:
                stop += 1
            if stop > at:
                hashes[0] = index_hash(java(p, at, stop, seed))
                rows[0] = i
                hashes += 1
                rows += 1
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
    rows = PyByteArray_FromStringAndSize(NULL, keys * 8)
    project_all(
        data.at, columns.values, n, <int64_t *>PyByteArray_AsString(codes),
        <int32_t *>PyByteArray_AsString(hashes), <int64_t *>PyByteArray_AsString(rows),
    )
    return codes, hashes, rows


# -- queue units ----------------------------------------------------------------------------------


cdef bint is_visible(int64_t queue_id, int64_t sys_flag) noexcept nogil:
    """Does a consume queue hold this record? Not the halves of transactions that are not committed."""
    return queue_id >= 0 and (sys_flag & TRANSACTION == 0 or sys_flag & TRANSACTION == 8)


cdef void fill_units(
    const int64_t *table, const int64_t *codes, const int64_t *group_of, int64_t n, int64_t *cursors,
    uint8_t *units, int64_t *unit_codes, int64_t *offsets,
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
        unit_codes[to] = codes[i]
        offsets[to] = table[5 * n + i]


def queue_units(table, codes, topic_of=None):
    """See kernel_python.queue_units."""
    cdef Column columns = Column(table, PyBUF_SIMPLE)
    cdef int64_t n = columns.size // (8 * FIELDS), i, queue_id, topic = 0
    cdef int64_t group = -1, last_queue = -1, last_topic = -1, refused = 0, first = 0, count
    cdef const int64_t *t = columns.values
    cdef Column code = Column(codes, PyBUF_SIMPLE, n)
    cdef Column topics
    cdef const int64_t *topic_at = NULL
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
    sizes = []
    for i in range(len(keys)):
        count = cursors[i]
        sizes.append(count)
        cursors[i] = first
        first += count
    units = PyByteArray_FromStringAndSize(NULL, first * 20)
    unit_codes = PyByteArray_FromStringAndSize(NULL, first * 8)
    offsets = PyByteArray_FromStringAndSize(NULL, first * 8)
    fill_units(
        t, code.values, groups, n, cursors, <uint8_t *>PyByteArray_AsString(units),
        <int64_t *>PyByteArray_AsString(unit_codes), <int64_t *>PyByteArray_AsString(offsets),
    )
    return units, unit_codes, offsets, [(*key, size) for key, size in zip(keys, sizes)], refused
