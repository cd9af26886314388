"""Reads queries as an engine's API does, and says what is wrong in its words.

A query is anonymous or named, without variables and fragments; anything else
is Unsupported, which is no answer of an engine but a test that asks too much.
"""

import json
import re

TOKEN = re.compile(
    r'(?P<skip>[\s,\ufeff]+|\#[^\n\r]*)'
    r'|(?P<String>"[^"\\\n]*(?:\\.[^"\\\n]*)*")'
    r'|(?P<Float>-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))'
    r'|(?P<Int>-?\d+)|(?P<Name>[_A-Za-z]\w*)'
    r'|(?P<mark>\.\.\.|[{}()\[\]:$!=@|&])',
    re.ASCII)

ESCAPE = re.compile(r'(?<!\\)(?:\\\\)*\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
DEEPEST = 200


class Unsupported(Exception):
    pass


class Refused(Exception):
    """422, with these errors."""

    def __init__(self, *errors):
        self.errors = list(errors)


class Enum(str):
    pass


def refusal(code, message, line=None, column=None):
    error = {"message": message}
    if line:
        error["locations"] = [{"line": line, "column": column}]
    error["extensions"] = {"code": code}
    return error


def dumps(value):
    """As Go writes JSON."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, "\\u%04x" % ord(char))
    return text.encode("utf-8", "replace")


class Field:
    def __init__(self, alias, name, at):
        self.alias = alias
        self.name = name
        self.at = at
        self.arguments = {}
        self.twice = []
        self.selection = None


class Reader:
    def __init__(self, text):
        self.tokens = []
        self.at = 0
        line, start, at = 1, 0, 0
        while at < len(text):
            found = TOKEN.match(text, at)
            here = (line, at - start + 1)
            if found and found.lastgroup == "String":
                wrong = ESCAPE.search(found.group())
                here = (line, here[1] + 1)
                if wrong:
                    found, at = None, at + wrong.start() + 1
            elif not found and text[at] == '"':
                at = len(text)
            if not found:
                self.tokens.append(("Invalid", "<Invalid>",
                                    (line, at - start + 1)))
                break
            kind, value = found.lastgroup, found.group()
            for n in re.finditer("\n", value):
                line, start = line + 1, at + n.end()
            at = found.end()
            if kind != "skip":
                self.tokens.append((kind, value, here))
        self.tokens.append(("end", "<EOF>", (line, at - start + 1)))

    def fail(self, wanted):
        kind, value, here = self.tokens[self.at]
        raise Refused(refusal(
            "GRAPHQL_PARSE_FAILED", wanted + ", found "
            + (value if kind in ("mark", "end", "Invalid") else kind), *here))

    def unexpected(self):
        kind, value, here = self.tokens[self.at]
        if kind in ("Name", "Int", "Float", "String"):
            value = '%s "%s"' % (kind, value[1:-1] if kind == "String"
                                 else value)
        raise Refused(refusal("GRAPHQL_PARSE_FAILED", "Unexpected " + value,
                              *here))

    def peek(self):
        return self.tokens[self.at][1]

    def take(self, kind, value=None):
        found = self.tokens[self.at]
        if found[0] != kind or value and found[1] != value:
            self.fail("Expected %s" % (value or kind))
        self.at += 1
        return found

    def document(self):
        """The fields of the one operation; None: there is none."""
        if self.tokens[self.at][0] == "end":
            return None
        kind, value, here = self.tokens[self.at]
        if kind == "Name":
            if value in ("mutation", "subscription"):
                raise Refused(refusal(
                    "GRAPHQL_VALIDATION_FAILED", "Schema does not support "
                    'operation type "%s"' % value, *here))
            if value != "query":
                self.unexpected()
            self.at += 1
            if self.tokens[self.at][0] == "Name":
                self.at += 1
            if self.peek() == "(":
                raise Unsupported("variables")
        elif value != "{":
            self.unexpected()
        fields = self.selection(0)
        if self.peek() in ("{", "query", "fragment"):
            raise Unsupported("more than one definition")
        if self.tokens[self.at][0] != "end":
            self.unexpected()
        return fields

    def selection(self, depth):
        if depth > DEEPEST:
            raise Unsupported("more than %d levels" % DEEPEST)
        self.take("mark", "{")
        fields = []
        if self.peek() == "}":
            self.fail("expected at least one definition")
        while self.peek() != "}":
            if self.peek() == "...":
                raise Unsupported("fragments")
            _, name, here = self.take("Name")
            field = Field(name, name, here)
            if self.peek() == ":":
                self.at += 1
                field.name = self.take("Name")[1]
            if self.peek() == "(":
                self.arguments(field)
            if self.peek() == "@":
                self.at += 1
                self.take("Name")
                raise Unsupported("directives")
            if self.peek() == "{":
                field.selection = self.selection(depth + 1)
            fields.append(field)
        self.at += 1
        return fields

    def arguments(self, field):
        self.at += 1
        if self.peek() == ")":
            self.fail("expected at least one definition")
        while self.peek() != ")":
            _, name, here = self.take("Name")
            self.take("mark", ":")
            if name in field.arguments:
                field.twice.append((name, here))
            field.arguments[name] = self.value(0)
        self.at += 1

    def value(self, depth):
        kind, value, _ = self.tokens[self.at]
        if depth > DEEPEST or value in ("$", "{"):
            raise Unsupported("a value " + value)
        self.at += 1
        if kind == "String":
            return self.string(value)
        if kind == "Int":
            return int(value)
        if kind == "Float":
            return float(value)
        if kind == "Name":
            return {"true": True, "false": False, "null": None}.get(
                value, Enum(value))
        if value == "[":
            out = []
            while self.peek() != "]":
                out.append(self.value(depth + 1))
            self.at += 1
            return out
        self.at -= 1
        self.unexpected()

    @staticmethod
    def string(value):
        """JSON's escapes and no others; half of a pair is replaced."""
        text = json.loads(value, strict=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16",
                                                             "replace")


def close(name, others):
    """As "Did you mean" is found: few letters are to be changed."""
    out = []
    for other in others:
        far = distance(name, other)
        if far <= len(name) * 2 // 5 + 1:
            out.append((far, other))
    names = ['"%s"' % n for _, n in sorted(out)][:5]
    if not names:
        return ""
    return " Did you mean %s?" % (names[0] if len(names) == 1 else ", ".join(
        names[:-1]) + (", or " if len(names) > 2 else " or ") + names[-1])


def distance(a, b):
    if a == b:
        return 0
    a, b = a.lower(), b.lower()
    if a == b:
        return 1
    row, before = list(range(len(b) + 1)), None
    for i in range(1, len(a) + 1):
        last, row, older = row, [i], before
        for j in range(1, len(b) + 1):
            cost = a[i - 1] != b[j - 1]
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + cost)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] \
                    and a[i - 2] == b[j - 1]:
                best = min(best, older[j - 2] + cost)
            row.append(best)
        before = last
    return row[-1]


def validate(fields, kind, schema):
    """Raises Refused with all that is wrong with names; `schema` is
    {type: {field: (arguments, type)}}, arguments {name: "String!"}."""
    errors = []
    walk(fields, kind, schema, errors)
    if errors:
        raise Refused(*errors)


def walk(fields, kind, schema, errors):
    names = schema.get(kind, {})
    seen = {}
    for field in fields:
        other = seen.setdefault(field.alias, field)
        if other.name != field.name or other.arguments != field.arguments:
            errors.append(refusal(
                "GRAPHQL_VALIDATION_FAILED",
                'Fields "%s" conflict because %s. Use different aliases on '
                "the fields to fetch both if this was intentional." % (
                    field.alias, '"%s" and "%s" are different fields' % (
                        other.name, field.name) if other.name != field.name
                    else "they have differing arguments"), *field.at))
        elif other is not field and field.selection:
            raise Unsupported("selections to be merged")
        for name, at in field.twice:
            errors.append(refusal(
                "GRAPHQL_VALIDATION_FAILED", "There can be only one argument "
                'named "%s".' % name, *at))
        if field.name == "__typename":
            continue
        if field.name not in names:
            errors.append(refusal(
                "GRAPHQL_VALIDATION_FAILED",
                'Cannot query field "%s" on type "%s".%s' % (
                    field.name, kind, close(field.name, names)), *field.at))
            continue
        if names[field.name] is None:
            raise Unsupported("%s.%s" % (kind, field.name))
        known, result = names[field.name]
        for name in field.arguments:
            if name not in known:
                errors.append(refusal(
                    "GRAPHQL_VALIDATION_FAILED",
                    'Unknown argument "%s" on field "%s.%s".%s' % (
                        name, kind, field.name, close(name, known)),
                    *field.at))
        for name, wanted in known.items():
            if wanted.endswith("!") and field.arguments.get(name) is None:
                errors.append(refusal(
                    "GRAPHQL_VALIDATION_FAILED",
                    'Field "%s" argument "%s" of type "%s" is required, but '
                    "it was not provided." % (field.name, name, wanted),
                    *field.at))
        if field.selection:
            walk(field.selection, result, schema, errors)
