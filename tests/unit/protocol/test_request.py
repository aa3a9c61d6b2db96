"""The base of all headers."""

import msgspec
import pytest

from kourou.protocol.request import Header, Int32, Int64, Request, Response
from kourou.protocol.table import REQUESTS

HEADERS = sorted(
    {spec.header for spec in REQUESTS.values()}
    | {spec.response for spec in REQUESTS.values() if spec.response is not None},
    key=lambda header: header.__name__,
)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_every_header_is_frozen_keyword_only_and_a_header(header):
    assert issubclass(header, (Request, Response))
    config = header.__struct_config__
    assert config.frozen
    with pytest.raises(TypeError, match="positional"):
        header("a positional argument")
    assert header.__doc__


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.__name__)
def test_every_integer_of_a_header_has_a_width(header):
    """A width, or the part of one that does not lie below 0."""
    widths = {(-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1), (0, 2**63 - 1)}
    info = msgspec.inspect.type_info(header)
    for field in info.fields:
        for kind in getattr(field.type, "types", (field.type,)):
            if isinstance(kind, msgspec.inspect.IntType):
                assert (kind.ge, kind.le) in widths


def test_a_new_header_inherits_spelling_and_omission():
    class Example(Header, kw_only=True, frozen=True):
        some_field: Int32 = 0
        other_field: Int64

    encoded = msgspec.to_builtins(Example(other_field=5))
    assert encoded == {"otherField": 5}


@pytest.mark.parametrize(("width", "bits"), [(Int32, 31), (Int64, 63)])
def test_widths_are_those_of_java(width, bits):
    for good in (-(2**bits), 2**bits - 1):
        assert msgspec.convert(good, width) == good
    for bad in (-(2**bits) - 1, 2**bits):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, width)
