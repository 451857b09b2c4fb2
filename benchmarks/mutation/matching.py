"""Plant a mistake in a source text, whatever its local variables are called now.

The old text is replaced as it is if it occurs once (and ``beside`` occurs).  Otherwise its tokens are compared with
those of the source.  There a local variable, such as a parameter or a name within a comprehension, matches any name
that is no global, import or builtin of the source, consistently and one to one.  Comments, white space, line breaks
and a comma before a closing bracket do not matter.  The new text gets the source's names and indentation.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

#: A comment (no group), or a word or one character of anything else; strings fall into words too, as in f-strings.
TOKEN = re.compile(r"^[ \t]*#.*|[ \t]{2,}#.*|(\w+|[^\w\s])", re.MULTILINE)
CLOSING = (")", "]", "}")
SCOPES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Token(NamedTuple):
    """A word or one other character, and its offset."""

    word: str
    start: int


class Match(NamedTuple):
    """A span that matches, the old text's tokens and its own side by side, and its local names by the old ones."""

    start: int
    end: int
    pairs: list[tuple[Token, Token]]
    names: dict[str, str]


def plant(source: str, old: str, new: str, within: str = "", beside: str = "") -> str:
    """The source with ``new`` in place of ``old``."""
    first, last = _span(source, within) if within else (0, len(source))
    exact = _places(source, old, first, last)
    if len(exact) == 1 and (not beside or _places(source, beside, first, last)):
        return source[: exact[0]] + new + source[exact[0] + len(old) :]
    known = [match.names for match in _matches(source, beside, first, last, {})] if beside else [{}]
    found = [match for names in known for match in _matches(source, old, first, last, names)]
    places = list({(match.start, *sorted(match.names.items())): match for match in found}.values())
    if len(places) != 1:
        raise ValueError(
            f"the old text occurs {len(exact)} times, and {len(places)} times with other local names: expected once "
            "(`within` names the function that is meant)"
        )
    match = places[0]
    new = _indented(source, old, new, match.pairs)
    planted = source[: match.start] + new + source[match.end :]
    try:
        variables = _variables(ast.parse(planted), planted)
    except SyntaxError as error:
        raise ValueError(f"the source with the new text is no Python: {error.msg}, line {error.lineno}") from None
    # From the back, so that offsets in front stay right.
    for at, name in sorted(variables.items(), reverse=True):
        if match.start <= at < match.start + len(new) and name in match.names:
            planted = planted[:at] + match.names[name] + planted[at + len(name) :]
    return planted


def _places(source: str, text: str, start: int, stop: int) -> list[int]:
    """Offsets of the text as it is, in whole words."""
    begin, end = (r"(?<!\w)" if text[:1].isidentifier() else ""), (r"(?!\w)" if text[-1:].isidentifier() else "")
    return [found.start() for found in re.compile(begin + re.escape(text) + end).finditer(source, start, stop)]


def _matches(source: str, old: str, start: int, stop: int, known: dict[str, str]) -> Iterator[Match]:
    """Matches of the old text between two offsets; local variables may have other names than in ``known``."""
    pattern, (tokens, local, fixed) = tokens_of(old), _parsed(source)
    for first, token in enumerate(tokens if pattern else []):
        names, pairs, at = dict(known), [], first
        for k, mine in enumerate(pattern):
            if mine.word == "," and _word(pattern, k + 1) in CLOSING and _word(tokens, at) != ",":
                continue
            if mine.word != "," and _word(tokens, at) == "," and _word(tokens, at + 1) in CLOSING:
                at += 1
            if at >= len(tokens) or not _equal(mine.word, tokens[at], local, fixed, names):
                break
            pairs.append((mine, tokens[at]))
            at += 1
        else:
            if start <= token.start and (end := tokens[at - 1].start + len(tokens[at - 1].word)) <= stop:
                yield Match(*_with_margins(source, old, token.start, end), pairs, names)


def _equal(mine: str, token: Token, local: set[int], fixed: set[str], names: dict[str, str]) -> bool:
    """True if the word may stand for the token; ``names`` then has the name of a local variable."""
    if token.start not in local:
        return mine == token.word
    if mine != token.word and (not mine.isidentifier() or mine in fixed):
        return False
    if mine not in names and token.word in names.values():
        return False
    return names.setdefault(mine, token.word) == token.word


def _with_margins(source: str, old: str, start: int, end: int) -> tuple[int, int]:
    """The span with as much of the white space around it as the old text has."""
    lead, tail = old[: len(old) - len(old.lstrip())], old[len(old.rstrip()) :]
    if lead:
        start = len(source[:start].rstrip(" \t")) - ("\n" in lead)
    if "\n" in tail:
        end = source.index("\n", end) + 1
    if tail and tail[-1] != "\n":
        end = len(source) - len(source[end:].lstrip(" \t"))
    return start, end


def _indented(source: str, old: str, new: str, pairs: list[tuple[Token, Token]]) -> str:
    """The new text, its lines moved as far as the first line of the old text that starts a line of the source too."""
    columns = ((_indent(old, mine.start), _indent(source, theirs.start)) for mine, theirs in pairs)
    move = next((there - here for here, there in columns if here and there is not None), 0)
    # The first line starts in the middle of one of the source, unless it is indented.
    lines = re.compile(r"^ +" if new[:1] == " " else r"(?<=\n) +", re.MULTILINE)
    return lines.sub(lambda indent: " " * max(0, len(indent[0]) + move), new)


def _indent(text: str, at: int) -> int | None:
    """The column of a token that is the first of its line, else None."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return None if line.strip() else len(line)


def tokens_of(text: str) -> list[Token]:
    return [Token(found[1], found.start(1)) for found in TOKEN.finditer(text) if found[1]]


def _word(tokens: list[Token], at: int) -> str:
    return tokens[at].word if at < len(tokens) else ""


@lru_cache(maxsize=8)
def _parsed(source: str) -> tuple[list[Token], set[int], set[str]]:
    """Tokens; offsets of those that are local variables; names of globals, imports, builtins and keywords."""
    tree, local, known = ast.parse(source), set(), {*dir(builtins), *keyword.kwlist}
    for node in ast.walk(tree):
        if isinstance(node, SCOPES):
            bound = _bound(node)
            local.update(at for at, name in _variables(node, source).items() if name in bound)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).partition(".")[0])
    for node in tree.body:
        known |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else _bound(node)
    return tokens_of(source), local, known


def _bound(scope: ast.AST) -> set[str]:
    """Parameters, variables and functions that are made in this scope, or in those within it."""
    found = set()
    for node in ast.walk(scope):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.FunctionDef(name=name) if node is not scope:
                found.add(name)
    return found


def _variables(tree: ast.AST, source: str) -> dict[int, str]:
    """Names of variables and functions by their offsets; attributes and names of arguments in calls are none."""
    starts = [0, *(found.end() for found in re.finditer("\n", source))]
    found = {}
    for node in ast.walk(tree):
        match node:
            case (
                ast.arg(arg=name) | ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ExceptHandler(name=str(name))
            ):
                names = [name]
            case ast.Nonlocal(names=names):
                pass
            case _:
                continue
        line = source[starts[node.lineno - 1] :].partition("\n")[0]
        start = starts[node.lineno - 1] + len(line.encode()[: node.col_offset].decode())
        found.update((re.compile(rf"\b{name}\b").search(source, start).start(), name) for name in names)
    return found


def _span(source: str, within: str) -> tuple[int, int]:
    """First and last offset of the function or class of this qualified name."""
    node: ast.AST = ast.parse(source)
    for name in within.split("."):
        inner = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name]
        if len(inner) != 1:
            raise ValueError(
                f"within = {within!r}: {len(inner)} functions or classes are called {name}; expected one"
            )
        node = inner[0]
    lines = source.splitlines(keepends=True)
    return len("".join(lines[: node.lineno - 1])), len("".join(lines[: node.end_lineno]))
