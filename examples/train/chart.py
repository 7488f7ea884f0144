"""Draws the speed of training, as figure 8 of the Nezha paper: a group of bars for each model and network."""

import csv
from html import escape

COLORS = {
    "Gloo, one NIC": "#b5b5b5",
    "Gloo, a context per NIC": "#8a8a8a",
    "Gloo, a group per NIC": "#5f5f5f",
    "polyrail, one rail": "#7fb3e6",
    "polyrail, all rails": "#1f6fc0",
    "polyrail, all rails, one cut": "#d9822b",
}
BAR, GAP, HEIGHT, LEFT, TOP = 46, 34, 240, 56, 44


def draw(results: str, out: str) -> None:
    """Draws a file of results; where a way was run more than once, its last run."""
    with open(results, newline="") as f:
        rows = list(csv.DictReader(f))
    groups: dict[tuple[str, ...], dict[str, float]] = {}
    for r in rows:
        if r["way"] in COLORS:
            title = (f"{r['model']}, batch {r['batch']}", f"{r['ranks']} ranks", r["network"])
            groups.setdefault(title, {})[r["way"]] = float(r["images_per_s"])
    with open(out, "w") as f:
        f.write(svg(groups))


def svg(groups: dict[tuple[str, ...], dict[str, float]]) -> str:
    ways = [w for w in COLORS if any(w in bars for bars in groups.values())]
    wide = sum(max(len(bars), 3) * BAR + GAP for bars in groups.values())
    width = max(LEFT + wide + GAP, 640)
    height = TOP + HEIGHT + 72 + 22 * ((len(ways) + 2) // 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">Training speed, images per second over all ranks; '
        "each group has its own scale</text>",
        f'<line x1="{LEFT}" y1="{TOP + HEIGHT}" x2="{width - GAP}" y2="{TOP + HEIGHT}" stroke="black"/>',
    ]
    x = LEFT + GAP // 2
    for title, bars in groups.items():
        top = max(bars.values())
        slots = max(len(bars), 3) * BAR
        for i, way in enumerate(w for w in ways if w in bars):
            tall = (HEIGHT - 20) * bars[way] / top
            y = TOP + HEIGHT - tall
            parts.append(f'<rect x="{x + i * BAR + 3}" y="{y:.1f}" width="{BAR - 6}" height="{tall:.1f}" '
                         f'fill="{COLORS[way]}"><title>{escape(way)}</title></rect>')  # fmt: skip
            parts.append(f'<text x="{x + i * BAR + BAR / 2}" y="{y - 5:.1f}" text-anchor="middle">'
                         f"{bars[way]:.3g}</text>")  # fmt: skip
        for i, line in enumerate(title):
            parts.append(f'<text x="{x + slots / 2}" y="{TOP + HEIGHT + 18 + 15 * i}" text-anchor="middle">'
                         f"{escape(line)}</text>")  # fmt: skip
        x += slots + GAP
    for i, way in enumerate(ways):
        lx, ly = LEFT + (i % 3) * 200, TOP + HEIGHT + 76 + 22 * (i // 3)
        parts.append(f'<rect x="{lx}" y="{ly}" width="12" height="12" fill="{COLORS[way]}"/>')
        parts.append(f'<text x="{lx + 18}" y="{ly + 10}">{escape(way)}</text>')
    return "\n".join(parts) + "\n</svg>\n"
