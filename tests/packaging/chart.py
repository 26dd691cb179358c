"""Renders the templates of the chart without helm: the part of Go's text/template and of helm's functions that they use.

Anything else is an error, so that a template with a new function says so here. Rules of white space, of scopes and of
truth are those of https://pkg.go.dev/text/template.
"""

import hashlib
import re

ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\(|\)|\||[^\s()|]+')


class Failure(Exception):
    """The function `fail` was called."""


def parse(text):
    """Returns a list of texts and actions, with the white space removed that actions take away."""
    parts, at = [], 0
    for found in ACTION.finditer(text):
        before = text[at:found.start()]
        if parts and parts[-1][0] == "action" and parts[-1][2]:
            before = before.lstrip(" \t\r\n")
        if found.group(1):
            before = before.rstrip(" \t\r\n")
        parts.append(("text", before))
        parts.append(("action", found.group(2), bool(found.group(3))))
        at = found.end()
    rest = text[at:]
    if parts and parts[-1][2:] == (True,):
        rest = rest.lstrip(" \t\r\n")
    return [*parts, ("text", rest)]


class Chart:
    def __init__(self, yaml, files, templates, values, release="gw", chart=None):
        self.yaml, self.files, self.blocks = yaml, files, {}
        self.root = {"Values": values, "Chart": chart or {}, "Files": self,
                     "Release": {"Name": release, "Namespace": "default", "Service": "Helm"}}
        self.sources = {}
        for name, text in templates.items():
            body, _ = self.block(parse(text), 0)
            self.sources[name] = body

    def render(self):
        """Returns the text of each template but the helpers."""
        names = [name for name in self.sources if not name.startswith("_")]
        return {name: self.run(self.sources[name], self.root) for name in names}

    def block(self, parts, at):
        """Returns a list of texts, outputs and blocks up to the matching end, and the position behind it."""
        body = []
        while at < len(parts):
            part = parts[at]
            at += 1
            if part[0] == "text":
                body.append(("text", part[1]))
                continue
            words = part[1]
            if words.startswith("/*"):
                continue
            keyword = words.split(None, 1)[0]
            if keyword in ["end", "else"]:
                return body, at - 1
            if keyword in ["if", "with", "define"]:
                inner, at = self.block(parts, at)
                other = []
                if parts[at][1] == "else":
                    other, at = self.block(parts, at + 1)
                if parts[at][1] != "end":
                    raise ValueError(f"expected end after {words}, found {parts[at][1]}")
                at += 1
                condition = words.split(None, 1)[1]
                if keyword == "define":
                    self.blocks[condition.strip('"')] = inner
                else:
                    body.append((keyword, condition, inner, other))
            else:
                body.append(("output", words))
        return body, at

    def run(self, body, dot):
        out = []
        for node in body:
            if node[0] == "text":
                out.append(node[1])
            elif node[0] == "output":
                value = self.evaluate(node[1], dot)
                out.append("" if value is None else str(value) if not isinstance(value, bool) else str(value).lower())
            else:
                keyword, condition, inner, other = node
                value = self.evaluate(condition, dot)
                scope = value if keyword == "with" and value else dot
                out.append(self.run(inner if value else other, scope))
        return "".join(out)

    def evaluate(self, text, dot):
        words = WORD.findall(text)
        value, at = self.pipeline(words, 0, dot)
        if at != len(words):
            raise ValueError(f"not understood: {text}")
        return value

    def pipeline(self, words, at, dot):
        value, at = self.command(words, at, dot, [])
        while at < len(words) and words[at] == "|":
            value, at = self.command(words, at + 1, dot, [value])
        return value, at

    def command(self, words, at, dot, piped):
        """Evaluates a function with its arguments, or a single value."""
        terms = []
        first = words[at]
        while at < len(words) and words[at] not in ["|", ")"]:
            if words[at] == "(":
                value, at = self.pipeline(words, at + 1, dot)
                terms.append(value)
            elif terms or first[0] in '".0123456789':
                terms.append(self.term(words[at], dot))
            else:
                terms.append(words[at])
            at += 1
        name, arguments = terms[0], [*terms[1:], *piped]
        if first[0] in '".0123456789(' and not arguments:
            return name, at
        if first == ".Files.Get":
            return self.files[arguments[0]], at
        return self.call(name, arguments), at

    def term(self, word, dot):
        if word[0] == '"':
            return word[1:-1].encode().decode("unicode_escape")
        if word.isdigit():
            return int(word)
        if word == ".":
            return dot
        if word == ".Files.Get":
            return word
        if not word.startswith("."):
            raise ValueError(f"not understood: {word}")
        place = dot
        for name in word[1:].split("."):
            if not isinstance(place, dict) or name not in place:
                raise KeyError(f"{word} does not exist")
            place = place[name]
        return place

    def call(self, name, arguments):
        yaml = self.yaml
        functions = {
            "include": lambda block, dot: self.run(self.blocks[block], dot),
            "nindent": lambda width, text: "\n" + "\n".join(" " * width + line for line in text.split("\n")),
            "quote": lambda text: '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"',
            "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False, sort_keys=True).rstrip("\n"),
            "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
            "default": lambda fallback, value: value or fallback,
            "trunc": lambda width, text: text[:width],
            "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
            "replace": lambda old, new, text: text.replace(old, new),
            "contains": lambda part, text: part in text,
            "printf": lambda form, *values: form % values,
            "not": lambda value: not value,
            "and": lambda *values: next((value for value in values if not value), values[-1]),
            "or": lambda *values: next((value for value in values if value), values[-1]),
            "gt": lambda one, other: one > other,
            "add": lambda *values: sum(int(value) for value in values),
            "int": int,
            "fail": self.fail,
        }
        return functions[name](*arguments)

    @staticmethod
    def fail(message):
        raise Failure(message)
