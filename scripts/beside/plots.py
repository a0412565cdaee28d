"""Plots as SVG, without any library: ratios on a logarithmic axis, lines over clients, and flame graphs."""

import math
import re
from html import escape

STYLE = """<style>svg{font:13px system-ui,sans-serif}text{fill:#1a1a1a}rect.page{fill:#fff}path.grid{stroke:#888;
stroke-opacity:.3;fill:none}path.one{stroke:#c33;fill:none}.a{fill:#26a;stroke:#26a}.b{fill:#2a6;stroke:#2a6}
.c{fill:#c83;stroke:#c83}.d{fill:#a4a;stroke:#a4a}path.a,path.b,path.c,path.d{fill:none;stroke-width:2}
path.dashed{stroke-dasharray:6 4}@media(prefers-color-scheme:dark){rect.page{fill:#161616}text{fill:#ddd}}</style>"""


def page(width, height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img">'
    rect = f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>'
    return "\n".join([head, STYLE, rect, *parts, "</svg>", ""])


def text(x, y, words, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def ratios(rows, series):
    """One row for each cell, a dot for each series (name -> class): rows are (label, {name: ratio})."""
    values = [value for _, by in rows for value in by.values()]
    low = 10 ** math.floor(math.log10(min(values + [0.5])) * 2) if not values else min(values + [0.5]) / 1.15
    high = max(values + [2.0]) * 1.15
    left, wide, top, step = 330, 480, 44, 17

    def x(value):
        return left + wide * math.log(value / low) / math.log(high / low)

    bottom = top + step * len(rows)
    parts = []
    for number, (name, kind) in enumerate(series.items()):
        parts.append(f'<circle class="{kind}" cx="{left + 6 + 170 * number}" cy="12" r="4"/>')
        parts.append(text(left + 16 + 170 * number, 16, name))
    for mark in (0.1, 0.2, 0.5, 1, 1.5, 2, 5, 10, 20, 50, 100):
        if low <= mark <= high:
            parts.append(f'<path class="{"one" if mark == 1 else "grid"}" d="M{x(mark):.1f} {top - 8}V{bottom}"/>')
            parts.append(text(x(mark), top - 12, f"{mark:g}", "middle"))
    for number, (label, by) in enumerate(rows):
        y = top + step * number + 8
        parts.append(text(left - 10, y + 4, label, "end"))
        for name, value in by.items():
            parts.append(f'<circle class="{series[name]}" cx="{x(value):.1f}" cy="{y}" r="4"/>')
    return page(left + wide + 60, bottom + 12, parts)


def lines(title, xs, series):
    """Rates over numbers of clients, both axes logarithmic: series are (name, class, dashed, {x: value})."""
    left, wide, top, high = 70, 380, 40, 240
    values = [value for _, _, _, by in series for value in by.values()]
    low, most = min(values) / 1.3, max(values) * 1.3

    def x(value):
        return left + wide * math.log(value / xs[0]) / math.log(xs[-1] / xs[0])

    def y(value):
        return top + high - high * math.log(value / low) / math.log(most / low)

    parts = [text(left, 20, title)]
    for value in xs:
        parts.append(f'<path class="grid" d="M{x(value):.1f} {top}V{top + high}"/>')
        parts.append(text(x(value), top + high + 18, f"{value}", "middle"))
    parts.append(text(left + wide / 2, top + high + 36, "clients", "middle"))
    for mark in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if low <= mark * 1000 <= most:
            parts.append(f'<path class="grid" d="M{left} {y(mark * 1000):.1f}H{left + wide}"/>')
            parts.append(text(left - 8, y(mark * 1000) + 4, f"{mark}k", "end"))
    for number, (name, kind, dashed, by) in enumerate(series):
        path = "L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in sorted(by.items()))
        dash = " dashed" if dashed else ""
        parts.append(f'<path class="{kind}{dash}" d="M{path}"/>')
        at = top + 10 + 22 * number
        parts.append(f'<path class="{kind}{dash}" d="M{left + wide + 16} {at}h24"/>')
        parts.append(text(left + wide + 46, at + 4, name))
    return page(left + wide + 230, top + high + 46, parts)


# Narrower frames, and those that are deeper, are left out: they are what makes such files large.
LEAST_WIDTH = 1.2
DEEPEST = 44
FRAME = 15
EXECUTOR = (
    "core::",
    "std::",
    "alloc::",
    "tokio::",
    "clone",
    "futures_util::",
    "thread_native",
    "entry_SYSCALL",
)


def fold(script, depth=DEEPEST):
    """Stacks of `perf script` as a tree: {name: [samples, tree]}."""
    tree, total = {}, 0
    for sample in script.split("\n\n"):
        frames = [frame_name(line) for line in sample.splitlines()[1:] if line.strip()]
        if not frames:
            continue
        total += 1
        # Where a stack begins differs by how much of it was kept: the executor's frames are left out.
        frames = [frame for frame in reversed(frames) if frame]
        while len(frames) > 1 and frames[0].lstrip("<").startswith(EXECUTOR):
            frames.pop(0)
        here = tree
        thread = re.sub(r"^(iou-\w+)-\d+$", r"\1", sample.split(maxsplit=1)[0])
        for name in [thread, *frames][:depth]:
            entry = here.setdefault(name, [0, {}])
            entry[0] += 1
            here = entry[1]
    return {"samples": total, "tree": pruned(tree, max(1, total * LEAST_WIDTH / 1000))}


def frame_name(line):
    """The function of a line `address name+offset (file)`, short."""
    name = line.strip().split(" ", 1)[-1].rsplit(" (", 1)[0].rsplit("+0x", 1)[0]
    if name in ("[unknown]", "_start", "main", "__libc_start_main_impl", "__clone3", "start_thread"):
        return None
    return name.replace("{{closure}}", "{}").replace("<impl ", "<")[:110]


def pruned(tree, least):
    return {name: [count, pruned(below, least)] for name, (count, below) in tree.items() if count >= least}


def depth_of(tree):
    return 1 + max((depth_of(below) for _, below in tree.values()), default=0) if tree else 0


def hue(name):
    """Warm colours for the program, blue for the kernel."""
    number = sum(ord(letter) * (at + 1) for at, letter in enumerate(name[:24]))
    if "::" in name or "<" in name:
        return f"hsl({10 + number % 45},75%,{62 + number % 12}%)"
    return f"hsl({195 + number % 30},45%,{66 + number % 10}%)"


def flame(title, folded):
    wide, deep = 1000, depth_of(folded["tree"])
    high = 34 + FRAME * (deep + 1)
    parts = [
        "<style>text.f{font-size:10px;fill:#111}rect.f{stroke:#fff;stroke-width:.4}</style>",
        text(8, 20, title),
    ]
    scale = wide / max(1, folded["samples"])

    def draw(tree, x, level):
        for name, (count, below) in sorted(tree.items()):
            w, y = count * scale, high - FRAME * (level + 1)
            if w < LEAST_WIDTH:
                x += w
                continue
            share = f"{count / folded['samples'] * 100:.1f} %"
            parts.append(
                f'<rect class="f" x="{x:.1f}" y="{y}" width="{w:.1f}" height="{FRAME}" fill="{hue(name)}">'
                f"<title>{escape(name)}: {share}</title></rect>"
            )
            letters = int(w / 5.6)
            if letters > 4:
                short = name if len(name) <= letters else shorter(name, letters)
                parts.append(f'<text class="f" x="{x + 2:.1f}" y="{y + 11}">{escape(short)}</text>')
            draw(below, x, level + 1)
            x += w

    draw(folded["tree"], 0, 0)
    return page(wide, high, parts)


def reading(folded):
    """What a flame graph says, in a sentence."""
    own, kernel = {}, 0

    def walk(tree, is_kernel):
        nonlocal kernel
        for name, (count, below) in tree.items():
            inside = is_kernel or name.startswith(("entry_SYSCALL", "asm_", "ret_from_fork"))
            here = count - sum(deeper for deeper, _ in below.values())
            if inside:
                kernel += here
            else:
                own[name] = own.get(name, 0) + here
            walk(below, inside)

    for thread, (count, tree) in folded["tree"].items():
        walk(tree, thread.startswith("iou-"))
        kernel += count - sum(deeper for deeper, _ in tree.values()) if thread.startswith("iou-") else 0
    share = 100 / max(1, folded["samples"])
    most = sorted(own.items(), key=lambda entry: -entry[1])[:4]
    listed = ", ".join(f"`{shorter(name, 60)}` {count * share:.0f} %" for name, count in most)
    threads = sorted(folded["tree"].items(), key=lambda entry: -entry[1][0])
    named = ", ".join(f"{name} {count * share:.0f} %" for name, (count, _) in threads if count * share >= 3)
    return (
        f"{folded['samples']} samples; threads: {named}. The kernel takes {kernel * share:.0f} %, most of it for the "
        f"socket and the device; of the rest, the most is in {listed}."
    )


def shorter(name, letters):
    """The end of a path says more than its beginning."""
    tail = "::".join(name.split("::")[-2:])
    return tail if len(tail) <= letters else tail[: letters - 1] + "…"
