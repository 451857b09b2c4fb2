"""Choice of a person's rows: numbers of pairs, keyed hashes, the least of them."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import bits_of, inline, kernel

#: "somepseudorandomlygeneratedbytes", with which SipHash begins.
_V0, _V1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_V2, _V3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_END, _BYTE = np.uint64(0xFF), np.uint64(56)
_EIGHT, _TWO = np.uint64(8), np.uint64(2)
#: For a hash of 128 bits.
_FIRST, _SECOND = np.uint64(0xEE), np.uint64(0xDD)
#: For the hash table: 2^64 over the golden ratio, an odd number.
_ODD, _ONE, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(1), np.uint64(32)


@inline
def _left(x: np.uint64, bits: int) -> np.uint64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@inline
def _sip_round(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a += b
    c += d
    b, d = _left(b, 13) ^ a, _left(d, 16) ^ c
    a = _left(a, 32) + d
    c += b
    b, d = _left(b, 17) ^ c, _left(d, 21) ^ a
    return a, b, _left(c, 32), d


@inline
def _absorbed(
    v: tuple[np.uint64, np.uint64, np.uint64, np.uint64], word: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a, b, c, d = v
    a, b, c, d = _sip_round(a, b, c, d ^ word)
    return a ^ word, b, c, d


@inline
def _started(key: np.ndarray) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    return key[0] ^ _V0, key[1] ^ _V1, key[0] ^ _V2, key[1] ^ _V3


@inline
def _ended(v: tuple[np.uint64, np.uint64, np.uint64, np.uint64], words: np.uint64) -> np.uint64:
    a, b, c, d = _absorbed(v, (words * _EIGHT) << _BYTE)
    c ^= _END
    for _ in range(3):
        a, b, c, d = _sip_round(a, b, c, d)
    return a ^ b ^ c ^ d


@inline
def sip_of_pair(key: np.ndarray, first: np.uint64, second: np.uint64) -> np.uint64:
    """SipHash-1-3 of two words."""
    return _ended(_absorbed(_absorbed(_started(key), first), second), _TWO)


@kernel
def hash_rows(
    key: np.ndarray, persons: np.ndarray, times: np.ndarray, words: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """SipHash-1-3 of each row's person, instant, key and values: uint64[n].

    ``persons``: digests, int64[n, 2]; ``times``, ``words``: instants, and keys' hash input; ``values``, float64[c,
    n]: 0.0 equals -0.0.
    """
    found = np.empty(times.size, np.uint64)
    start = _started(key)
    for i in range(times.size):
        v = _absorbed(_absorbed(start, np.uint64(persons[i, 0])), np.uint64(persons[i, 1]))
        v = _absorbed(_absorbed(v, np.uint64(times[i])), np.uint64(words[i]))
        for c in range(values.shape[0]):
            v = _absorbed(v, np.uint64(bits_of(values[c, i] + 0.0)))
        found[i] = _ended(v, np.uint64(4 + values.shape[0]))
    return found


@inline
def _word(data: np.ndarray, begin: np.int64, size: int) -> np.uint64:
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(data[begin + k]) << np.uint64(8 * k)
    return word


@kernel
def hash_texts(key: np.ndarray, offsets: np.ndarray, data: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
    """SipHash-1-3-128, into two words, of each text in ``data``, from ``offsets`` (int64[n + 1]) on."""
    for n in range(offsets.size - 1):
        begin, size = offsets[n], offsets[n + 1] - offsets[n]
        a, b, c, d = _started(key)
        v, done = (a, b ^ _FIRST, c, d), 0
        while size - done >= 8:
            v = _absorbed(v, _word(data, begin + done, 8))
            done += 8
        a, b, c, d = _absorbed(v, _word(data, begin + done, size - done) | np.uint64(size) << _BYTE)
        c ^= _FIRST
        for _ in range(3):
            a, b, c, d = _sip_round(a, b, c, d)
        first[n] = np.int64(a ^ b ^ c ^ d)
        b ^= _SECOND
        for _ in range(3):
            a, b, c, d = _sip_round(a, b, c, d)
        second[n] = np.int64(a ^ b ^ c ^ d)


@inline
def _place(key: np.ndarray, a: np.int64, b: np.int64, slots: np.ndarray, pairs: np.ndarray) -> np.int64:
    x = (np.uint64(a) ^ key[0]) * (key[1] | _ONE)
    x = ((x >> _HALF) ^ x ^ np.uint64(b)) * _ODD
    place = np.int64((x >> _HALF) ^ x) & (slots.size - 1)
    while slots[place] >= 0 and (pairs[slots[place], 0] != a or pairs[slots[place], 1] != b):
        place = (place + 1) & (slots.size - 1)
    return place


@kernel
def number_pairs(
    key: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    slots: np.ndarray,
    pairs: np.ndarray,
    used: int,
    learns: bool,
) -> tuple[np.ndarray, int]:
    """Number pairs in order of first appearance, int64[n]; returns the number of pairs too.

    ``key``: secret of the hash table; ``slots``: numbers, -1 for empty, a power of two and more than ``used`` + n;
    ``pairs``: by number, room for n more; ``learns``: add new pairs, else they are -1.
    """
    found = np.empty(first.size, np.int64)
    for i in range(first.size):
        place = _place(key, first[i], second[i], slots, pairs)
        if slots[place] < 0 and learns:
            slots[place] = used
            pairs[used, 0], pairs[used, 1] = first[i], second[i]
            used += 1
        found[i] = slots[place]
    return found, used


@kernel
def least_rows(
    key: np.ndarray,
    groups: np.ndarray,
    hashes: np.ndarray,
    windows: np.ndarray,
    first: int,
    spans: int,
    most: int,
    per_window: int,
    size: int,
) -> np.ndarray:
    """Rows that count, bool[n]: of each group the ``most`` of least hash, at most ``per_window`` (0: any) a window.

    ``groups``: numbers, below ``size``, of persons or of their periods; ``hashes``: of :func:`hash_rows`, again for
    equal rows of a group; ``windows``: numbers of ``spans`` windows, from ``first`` on.
    """
    n = groups.size
    begins = np.zeros(size + 1, np.int64)
    for i in range(n):
        begins[groups[i] + 1] += 1
    for g in range(size):
        begins[g + 1] += begins[g]
    order = np.empty(n, np.int64)
    behind = begins[:-1].copy()
    for i in range(n):
        order[behind[groups[i]]] = i
        behind[groups[i]] += 1
    kept = np.ones(n, np.bool_)
    taken = np.zeros(spans if per_window else 0, np.int64)
    for g in range(size):
        rows = order[begins[g] : begins[g + 1]]
        if rows.size <= most and (per_window == 0 or rows.size <= per_window):
            continue
        own = hashes[rows]
        rows, own = _sorted(rows, own)
        if _renumber(key, own):
            rows, own = _sorted(rows, own)
        count = 0
        for t in range(rows.size):
            i = rows[t]
            full = count >= most or (per_window > 0 and taken[windows[i] - first] >= per_window)
            kept[i] = not full
            if not full:
                count += 1
                if per_window:
                    taken[windows[i] - first] += 1
        if per_window:
            for t in range(rows.size):
                taken[windows[rows[t]] - first] = 0
    return kept


@inline
def _sorted(rows: np.ndarray, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(hashes)
    return rows[order], hashes[order]


@inline
def _renumber(key: np.ndarray, hashes: np.ndarray) -> bool:
    """Hash equal neighbours again; True if there are any."""
    found, repeat, last = False, np.uint64(0), hashes[0]
    for t in range(1, hashes.size):
        now = hashes[t]
        repeat = repeat + np.uint64(1) if now == last else np.uint64(0)
        if repeat:
            hashes[t] = sip_of_pair(key, now, repeat)
            found = True
        last = now
    return found


@kernel
def link_rows(windows: np.ndarray, rows: np.ndarray, size: int, ends: np.ndarray) -> None:
    """Chain new rows to the rows before them in the same window.

    ``windows``: indices in ``ends`` of the new rows' windows; the last column of ``rows``, from ``size`` on, receives
    the row before, or -1; ``ends``: last row of each window, or -1.
    """
    for i in range(windows.size):
        rows[size + i, rows.shape[1] - 1] = ends[windows[i]]
        ends[windows[i]] = size + i


@kernel
def chained_rows(rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Indices of all rows in chains that end in ``ends``."""
    count, before = 0, rows.shape[1] - 1
    for w in range(ends.size):
        i = ends[w]
        while i >= 0:
            count, i = count + 1, rows[i, before]
    found = np.empty(count, np.int64)
    for w in range(ends.size):
        i = ends[w]
        while i >= 0:
            count -= 1
            found[count], i = i, rows[i, before]
    return found
