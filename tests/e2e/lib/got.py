# SPDX-License-Identifier: Apache-2.0
"""What scripts under test import: the words of .got and .got.plt of all that this process has loaded, and the rights of their pages.

    before = got.words(); ...; got.words() == before; got.ours(words): how many of them point into the collector
"""
import struct

COLLECTOR = "libascend_kernel_hook.so"


def _sections(path):
    """(address, size) of .got and .got.plt, and the address that its first segment is mapped to."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return []
        place, = struct.unpack_from("<Q", head, 40)
        size, count, names = struct.unpack_from("<HHH", head, 58)
        file.seek(place)
        table = [struct.unpack_from("<IIQQQQ", file.read(size)) for _ in range(count)]
        if names >= count:
            return []
        file.seek(table[names][4])
        text = file.read(table[names][5])
    found = []
    for name, _kind, _flags, address, _offset, length in table:
        if text[name:text.index(b"\0", name)] in (b".got", b".got.plt"):
            found.append((address, length))
    return found


def _maps():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                first, end = (int(word, 16) for word in fields[0].split("-"))
                yield first, end, fields[1], int(fields[2], 16), fields[5].rstrip("\n")


def words():
    """{(file, address): (word, rights of its page)}, the collector's own left out."""
    loaded, maps = {}, list(_maps())
    for first, _end, _rights, offset, path in maps:
        if offset == 0 and path not in loaded and ".so" in path and COLLECTOR not in path:
            loaded[path] = first
    found = {}
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for path, bias in loaded.items():
            for address, length in _sections(path):
                memory.seek(bias + address)
                data = memory.read(length)
                for at in range(0, length - 7, 8):
                    place = bias + address + at
                    rights = next((rights for first, end, rights, _, _ in maps if first <= place < end), "")
                    found[path, place] = (struct.unpack_from("<Q", data, at)[0], rights)
    return found


def ours(found):
    spans = [(first, end) for first, end, _, _, path in _maps() if path.endswith(COLLECTOR)]
    return {key for key, (word, _) in found.items() if any(first <= word < end for first, end in spans)}
