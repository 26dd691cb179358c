#!/usr/bin/env python3
"""Draws a flame graph of `perf script`: what runs on what, as wide as its share of the processor time.

    perf record --call-graph dwarf,65528 -F 999 -p PID -o perf.data -- sleep 6
    perf script --no-inline -i perf.data | python3 benches/e2e/flamegraph.py --title "Small requests" > graph.svg

The gateway's binary needs its symbols (CARGO_PROFILE_RELEASE_STRIP=none). Stacks below a system call are cut after 20
functions. The picture is plain SVG; the whole name and the share of a box are shown when the pointer rests on it.
"""
import argparse, html, re, sys

WIDTH, HEIGHT, FONT = 1400, 17, 11
# Below this share a box is left out: nobody could read it.
LEAST = 0.0025
COLORS = {"kernel": "#9db8d9", "model_gateway": "#f2b35c", "pingora": "#e9836f", "tokio": "#b9d48b", "other": "#d9d4c7"}


def stacks(lines):
    """Yields the stack of each sample, outermost first, and its period."""
    thread, weight, frames = None, 0, []
    for line in lines:
        if line.startswith(("\t", " ")) and thread is not None and line.strip():
            match = re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line.rstrip())
            if match:
                frames.append((re.sub(r"\+0x[0-9a-f]+$", "", match[1]), "kernel" in match[2]))
        elif not line.strip():
            if thread is not None and frames:
                yield [(thread, False)] + frames[::-1], weight
            thread, frames = None, []
        else:
            head = re.match(r"(.+?)\s+\d+\s+[\d.]+:\s+(\d+)", line)
            if head:
                thread, weight, frames = head[1], int(head[2]), []


def short(name):
    """Leaves out what all names have, and generic arguments."""
    name = re.sub(r"<impl (.*?) for (.*?)>", r"\2", name)
    return name.replace("model_gateway::", "").replace("::{{closure}}", "")


def add(tree, stack, weight):
    cut = next((at for at, (name, _) in enumerate(stack) if name.startswith("entry_SYSCALL")), None)
    for name, kernel in stack if cut is None else stack[:cut + 20]:
        tree["weight"] += weight
        if name.startswith("[unknown]"):
            continue
        tree = tree["below"].setdefault(name, {"weight": 0, "below": {}, "kernel": kernel})
    tree["weight"] += weight


def color(name, kernel):
    if kernel:
        return COLORS["kernel"]
    return next((COLORS[crate] for crate in ("model_gateway", "pingora", "tokio") if crate in name), COLORS["other"])


def boxes(tree, total, left, depth):
    """Yields left edge, width, depth, name and color of each box."""
    for name, node in sorted(tree["below"].items()):
        width = node["weight"] / total
        if width >= LEAST:
            yield left, width, depth, name, color(name, node["kernel"])
            yield from boxes(node, total, left, depth + 1)
        left += width


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--title", default="Flame graph")
    args = parser.parse_args()
    tree = {"weight": 0, "below": {}}
    for stack, weight in stacks(sys.stdin):
        add(tree, stack, weight)
    all_boxes = list(boxes(tree, tree["weight"] or 1, 0, 0))
    height = (max((box[2] for box in all_boxes), default=0) + 3) * HEIGHT
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="{FONT}">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="#fff"/><text x="8" y="18" font-size="15">{html.escape(args.title)}</text>')
    for left, width, depth, name, fill in all_boxes:
        x, y, wide = left * WIDTH, height - (depth + 1) * HEIGHT, width * WIDTH
        room = int(wide / FONT / 0.62)
        text = short(name)
        text = text if len(text) <= room else text[:room - 1] + "…" if room > 3 else ""
        print(f'<g><title>{html.escape(name)} ({width * 100:.1f} %)</title>'
              f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{HEIGHT - 1}" fill="{fill}"/>'
              f'<text x="{x + 2:.1f}" y="{y + HEIGHT - 5}">{html.escape(text)}</text></g>')
    print("</svg>")


main()
