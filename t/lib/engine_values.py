"""Values in an engine's queries: ids, and what it says of values that are none
of the type that is wanted.
"""

import base64
import json
import re

from engine import kind_of
from engine_graphql import Enum
from engine_schema import ENUMS


def varint(n):
    out = b""
    while n > 127:
        out += bytes((n & 127 | 128,))
        n >>= 7
    return out + bytes((n,))


def read_id(text):
    """(number, type) of an id; ValueError."""
    data = base64.b64decode(text, validate=True)
    if data[0] != 0x12 or data[1] != len(data) - 2 or data[2] != 8:
        raise ValueError("unexpected")
    number, shift, at = 0, 0, 3
    while True:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            break
    if data[at] != 0x12 or data[at + 1] != len(data) - at - 2 \
            or data[at + 2] != 0x0a:
        raise ValueError("unexpected")
    return number, data[at + 4:at + 4 + data[at + 3]].decode()


def not_an_id(text):
    """What is wrong with it, as the engine's decoders say it."""
    wrong = re.search("[^A-Za-z0-9+/=]", text)
    if wrong:
        return "failed to decode base64: illegal base64 data at input byte " \
            "%d" % wrong.start()
    if len(text) % 4:
        return "failed to decode base64: illegal base64 data at input byte " \
            "%d" % (len(text) // 4 * 4)
    try:
        read_id(text)
    except (ValueError, IndexError):
        return "failed to unmarshal proto: proto: cannot parse invalid " \
            "wire-format data"
    return None


def unfit(field, name, value, kind):
    """What the engine says of a value that is not of that type."""
    bare = kind.strip("!")
    if bare.endswith("ID") and field.startswith("load"):
        scalar = "dagql.Scalar[github.com/dagger/dagger/dagql.AnyID]"
        text = "%s (%s) using %s: " % (scalar, kind, scalar)
        wrong = not_an_id(value) if isinstance(value, str) else "not a string"
        return wrong and text + "invalid ID string: " + wrong
    if bare == "ID" and name == "cache":
        scalar = "dagql.ID[*github.com/dagger/dagger/core.CacheVolume]"
        text = "%s (%s) using %s: " % (scalar, kind, scalar)
        if not isinstance(value, str):
            return text + "cannot create ID[*core.CacheVolume] from int64: " \
                "%s" % value
        wrong = not_an_id(value)
        if wrong:
            return text + wrong
        if read_id(value)[1] != "CacheVolume":
            return text + 'expected "CacheVolume" ID, got %s! ID' \
                % read_id(value)[1]
        return None
    if bare == "String" and not (isinstance(value, str) or value is None):
        return "dagql.String (String!) using dagql.String: cannot create " \
            "String from " + go_type(value)
    if bare in ENUMS and value is not None and value not in ENUMS[bare][0]:
        return "dagql.DynamicOptional (%s) using dagql.DynamicOptional: " \
            'invalid enum member "%s" for %s' % (bare, value, ENUMS[bare][1])
    optional = "dagql.DynamicOptional (%s) using dagql.DynamicOptional: " \
        % bare
    if bare == "Int" and type(value) is not int:
        text = "dagql.Int (Int!) using dagql.Int: " if kind.endswith("!") \
            else optional
        if isinstance(value, str):
            return text + 'strconv.ParseInt: parsing "%s": invalid syntax' \
                % value
        return text + "cannot create Int from " + go_type(value)
    if bare == "Boolean" and type(value) is not bool:
        return optional + "cannot create Boolean from " + go_type(value)
    if bare.startswith("["):
        text = "dagql.DynamicArrayInput (%s) using dagql.DynamicArrayInput: " \
            % kind
        if isinstance(value, str):
            return text + 'decode "%s": ' % value + not_a_list(value)
        for entry in value if isinstance(value, list) else [value]:
            if not isinstance(entry, str):
                return text + "cannot create String from " + go_type(entry)
    return None


def not_a_list(text):
    try:
        value = json.loads(text)
    except ValueError:
        return "invalid character '%s' looking for beginning of value" \
            % text[:1] if text else "unexpected end of JSON input"
    return "json: cannot unmarshal %s into Go value of type []interface {}" \
        % kind_of(value)


def go_type(value):
    return {bool: "bool", int: "int64", float: "float64", str: "string",
            Enum: "string"}.get(type(value), "[]interface {}")
