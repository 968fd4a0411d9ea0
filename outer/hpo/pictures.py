"""Pictures of a study: parallel coordinates, loss against budget, importances.

Colours as in outer/reporting/style.py; what is of a model and what was drawn at random differ in shape besides.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.outer.hpo.axes import Axis, short_names, shown, value_text
from envolve.outer.hpo.importance import FANOVA, Importance
from envolve.outer.hpo.standings import agreements, last_of_each, ranked, succeeded
from envolve.outer.hpo.trial import Record
from envolve.outer.reporting.report import precise
from envolve.outer.reporting.style import BLUE, GREEN, GREY, ORANGE, budget_colours, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHARACTERS = 12  # of a title, in an inch
TICKS = 16  # choices that are named beside an axis
ROW = 12  # parameters beside each other
NEAR = 0.05  # share of an axis
OFF, FAILED = -0.12, 1.12  # heights beside an axis: a parameter that is not active, a loss that is none
KINDS = ((True, "o", BLUE, "proposed by the model"), (False, "s", ORANGE, "drawn at random"))


class LossScale:
    """Scale of the losses in a picture. Outliers must not flatten the rest: the view ends at the upper quartile plus
    three times the interquartile range, and larger losses lie on its edge."""

    def __init__(self, losses: Sequence[float]) -> None:
        self.known = any(map(math.isfinite, losses))
        x = np.array([v for v in losses if math.isfinite(v)] or [0.0])
        low, q1, q3, high = (float(v) for v in np.quantile(x, (0, 0.25, 0.75, 1)))
        self.log = low > 0 and high > 30 * low
        if self.log:
            self.low, self.high, self.cut = low, high, False
            return
        fence = q3 + 3 * (q3 - q1)
        self.cut = q3 > q1 and high > fence
        self.low, self.high = low, float(x[x <= fence].max()) if self.cut else high
        if self.low == self.high:
            margin = 0.1 * abs(self.low) or 1.0
            self.low, self.high = self.low - margin, self.high + margin

    def place(self, loss: float) -> float:
        """Relative position of a loss: the best at 0, the worst shown at 1."""
        if self.log:
            return math.log(loss / self.low) / math.log(self.high / self.low)
        return min(1.0, (loss - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        if not self.known:
            return []
        edge = "≥ " if self.cut else ""
        return [(p, edge * (p > 1 - 1e-6) + text) for p, text in number_ticks(self.low, self.high, self.log)]


def number_ticks(low: float, high: float, log: bool, whole: bool = False) -> list[tuple[float, str]]:
    """Tick positions in [0, 1] and labels: both ends, and round numbers between them that do not crowd."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if low == high:
        return [(0.5, tick_text(low))]
    if log:
        wide = high > 30 * low
        found = LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=7).tick_values(low, high)
    else:
        found = MaxNLocator(4, integer=whole, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)

    def place(x: float) -> float:
        return math.log(x / low) / math.log(high / low) if log else (x - low) / (high - low)

    span = high - low
    inner = [(place(x), tick_text(x, span)) for x in map(float, found) if low < x < high]
    return [(0.0, tick_text(low, span)), *(t for t in inner if 0.08 < t[0] < 0.92), (1.0, tick_text(high, span))]


def tick_text(x: float, span: float = math.inf) -> str:
    """Formats numbers with three digits, or enough to distinguish numbers within ``span``; 1e-4 instead of 0.0001."""
    if x == 0:
        return "0"
    digits = max(3, 2 + math.ceil(math.log10(abs(x) / span))) if span < math.inf else 3
    if abs(x) < 1e-3 or abs(x) >= 1e6:
        mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def parallel_coordinates(
    path: Path, records: Sequence[Record], axes: Sequence[Axis], title: str, loss_name: str
) -> None:
    """Write a PNG (150 dpi): a line for each configuration at its largest budget, over one axis per parameter, one of
    the budget and one of the loss, which is the colour too. Losses are those at the largest budget that any
    configuration has come through. Those at smaller ones tell something else: these configurations are grey and end at
    their budget. The best has its values written on it. Many parameters take several rows, each with budget and loss.
    """
    members = sorted(last_of_each(records), key=lambda r: -r.result.loss)  # the worst first: the better lie on top
    best = next(iter(ranked(records)), None)
    if best is not None:  # last, which is on top of all
        members = [r for r in members if r.trial.config_id != best.trial.config_id] + [best]
    top = best.trial.budget if best is not None else max(r.trial.budget for r in records)
    members.sort(key=lambda r: r.trial.budget == top)  # on top, too
    judged = [r for r in members if r.trial.budget == top]
    losses = LossScale([r.result.loss for r in judged])
    budgets = sorted({r.trial.budget for r in records})
    budget = Axis("budget", budgets[0], budgets[-1], log=budgets[-1] > 4 * budgets[0])
    names = short_names([a.name for a in axes])
    bands = math.ceil(len(axes) / ROW) or 1
    longest = math.ceil(len(axes) / bands)
    figure, grid = new_figure(max(8.0, 1.5 + 0.95 * (longest + 2)), 0.7 + 5.3 * bands, bands, upright=True)
    for ax, band in zip(grid, range(bands)):
        part = axes[band * longest : (band + 1) * longest]
        for r in members:
            _configuration(ax, r, r is best, part, budget, losses if r.trial.budget == top else None)
        for k, axis in enumerate(part):
            _draw_axis(ax, k, _ticks(axis), None if best is None else _height(axis, best, k))
        last = len(part) + 1
        spent = [(budget.place(b), f"{b:.4g}") for b in budgets]
        _draw_axis(ax, last - 1, spent, None if best is None else budget.place(top))
        _draw_axis(ax, last, losses.ticks(), None if best is None else losses.place(best.result.loss))
        if losses.known:
            ax.imshow(np.linspace(0, 1, 64)[:, None], cmap="viridis", extent=(last, last + 0.05, 0, 1), aspect="auto",
                      origin="lower", zorder=3)  # fmt: skip
        if any(a.name not in r.trial.values for r in members for a in part):
            ax.axhline(OFF, color="#dddddd", linewidth=0.8, zorder=0)
            ax.text(-0.25, OFF, "not\nactive", fontsize=7.5, color=GREY, ha="right", va="center")
        if not all(map(succeeded, judged)):
            ax.text(last + 0.1, FAILED, "failed", fontsize=8, color=GREY, va="center")
        ax.set_xlim(-0.6, longest + 1.7)  # the same in all rows
        ax.set_ylim(OFF - 0.06, FAILED + 0.04)
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
        ax.grid(visible=False)
        labels = [*(_text(names[a.name], 32) for a in part), "budget", loss_name]
        ax.set_xticks(range(last + 1), labels, rotation=25, ha="right", rotation_mode="anchor", fontsize=9)
        ax.tick_params(axis="x", length=0)
    many = len(members) != 1
    what = f"{len(members)} configuration{'s' * many}; lower is better"
    if len(judged) < len(members):
        what += f"; losses at budget {top:.4g}, which {len(judged)} reached; grey: the others"
    if best is not None:
        what += f"; the best is orange, with its values: loss {precise(best.result.loss)}"
    wide = int(CHARACTERS * figure.get_figwidth())
    figure.suptitle(f"{_text(title)}\n{textwrap.fill(what, wide)}", fontsize=10)
    figure.savefig(path, format="png")


def _configuration(
    ax: Axes, record: Record, is_best: bool, axes: Sequence[Axis], budget: Axis, losses: LossScale | None
) -> None:
    """losses: None for a configuration at a smaller budget than those compared."""
    from matplotlib import colormaps

    heights = [_height(a, record, k) for k, a in enumerate(axes)] + [budget.place(record.trial.budget)]
    if losses is None:
        ax.plot(*_curve(np.array(heights)), color=GREY, linewidth=0.6, alpha=0.35, zorder=1)
        return
    heights.append(losses.place(record.result.loss) if succeeded(record) else FAILED)
    line = _curve(np.array(heights))
    if not succeeded(record):
        ax.plot(*line, color=GREY, linewidth=0.7, alpha=0.6, linestyle="--", zorder=1)
        return
    if not is_best:
        colour = colormaps["viridis"](losses.place(record.result.loss))
        ax.plot(*line, color=colour, linewidth=1.1, alpha=0.75, zorder=2)
        return
    ax.plot(*line, color="white", linewidth=5.5, zorder=4)
    ax.plot(*line, color=ORANGE, linewidth=2.8, zorder=5, solid_capstyle="round")
    texts = [value_text(record.trial.values[a.name]) if a.name in record.trial.values else "" for a in axes]
    texts += [f"{record.trial.budget:.4g}", precise(record.result.loss)]
    ax.plot(range(len(heights)), heights, "o", color=ORANGE, markersize=5, zorder=6)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
    for k, (height, text) in enumerate(zip(heights, texts)):
        if text:
            ax.annotate(_text(text, 20), (k, height), (5, 5), textcoords="offset points", fontsize=7.5, zorder=7,
                        weight="bold", bbox=box)  # fmt: skip


def _text(text: str, most: int = 60) -> str:
    """Escapes text for matplotlib, which reads text between two dollar signs as mathematics."""
    return shown(text, most).replace("$", r"\$")


def _height(axis: Axis, record: Record, k: int) -> float:
    if axis.name not in record.trial.values:
        return OFF
    height = axis.place(record.trial.values[axis.name])
    if axis.choices:  # lines with the same choices would hide each other; a fixed pattern, no random numbers
        room = 0.5 / max(2, len(axis.choices) - 1)
        height += 0.35 * room * (((record.trial.config_id[2] + 1) * 0.618034 + k * 0.414) % 1 - 0.5)
    return height


def _curve(heights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smooth line over the axes at 0, 1, 2, ..., level at each axis, so that crossing lines can be followed."""
    t = np.linspace(0, 1, 13)[:-1]
    ease = 3 * t**2 - 2 * t**3
    y = (heights[:-1, None] + (heights[1:] - heights[:-1])[:, None] * ease).ravel()
    x = (np.arange(len(heights) - 1)[:, None] + t).ravel()
    return np.append(x, len(heights) - 1), np.append(y, heights[-1])


def _ticks(axis: Axis) -> list[tuple[float, str]]:
    if axis.choices:
        every = math.ceil(len(axis.choices) / TICKS)
        return [(axis.place(c), value_text(c)) for c in axis.choices[::every]]
    return number_ticks(axis.low, axis.high, axis.log, axis.whole)


def _draw_axis(ax: Axes, k: int, ticks: Sequence[tuple[float, str]], best: float | None) -> None:
    """best: where the best configuration is, whose value is written there and whose line would cross a number."""
    ax.plot([k, k], [0, 1], color="black", linewidth=1.0, zorder=3)
    for height, text in ticks:
        ax.plot([k - 0.05, k], [height, height], color="black", linewidth=0.8, zorder=3)
        if best is not None and abs(height - best) < NEAR:
            continue
        ax.text(k - 0.08, height, _text(text, 14), fontsize=7.5, ha="right", va="center", zorder=3.5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5})  # fmt: skip


def budget_loss(path: Path, records: Sequence[Record], title: str, loss_name: str, budget_name: str) -> None:
    """Write a PNG (150 dpi). Left: loss against budget, a line for each configuration that was promoted. Right: loss
    against the budgets that were spent, and the best at the largest budget so far."""
    figure, (left, right) = new_figure(11.5, 5.0, 2)
    figure.suptitle(_text(title), fontsize=11)
    scale = LossScale([r.result.loss for r in records])
    budgets = sorted({r.trial.budget for r in records})
    _against_budget(left, records, scale, budgets)
    _over_time(right, records, scale, budgets)
    for ax in (left, right):
        failed = [] if all(map(succeeded, records)) else [(1.1, "failed")]
        ax.set_ylim(-0.05, 1.17 if failed else 1.05)
        ticks = scale.ticks()
        ax.set_yticks([t[0] for t in ticks + failed], [t[1] for t in ticks + failed])
        ax.set_ylabel(loss_name)
        ax.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4, frameon=False)
    left.set_xlabel(budget_name)
    figure.savefig(path, format="png")


def _against_budget(ax: Axes, records: Sequence[Record], scale: LossScale, budgets: Sequence[float]) -> None:
    best = next(iter(ranked(records)), None)
    x = {b: k for k, b in enumerate(budgets)}  # budgets grow by a factor: the same distance between any two
    paths: dict[Any, list[Record]] = {}
    for r in records:
        paths.setdefault(r.trial.config_id, []).append(r)
    for config_id, rs in paths.items():
        mine = best is not None and config_id == best.trial.config_id
        points = [(x[r.trial.budget] + _aside(r), _y(scale, r)) for r in sorted(rs, key=lambda r: r.trial.budget)]
        colour = GREEN if mine else BLUE if rs[0].trial.model_based else ORANGE
        ax.plot(*zip(*points), color=colour, linewidth=2.4 if mine else 0.9, alpha=1 if mine else 0.45,
                zorder=3 if mine else 1)  # fmt: skip
        if mine and best is not None:
            ax.plot(*points[-1], "*", color=GREEN, markersize=13, markeredgecolor="black", markeredgewidth=0.6,
                    label=f"the best, {precise(best.result.loss)}", zorder=4)  # fmt: skip
    for model_based, mark, colour, label in KINDS:
        here = [r for r in records if r.trial.model_based == model_based]
        if here:
            number = len({r.trial.config_id for r in here})
            ax.plot([x[r.trial.budget] + _aside(r) for r in here], [_y(scale, r) for r in here], mark, color=colour,
                    markersize=5, alpha=0.8, markeredgecolor="white", markeredgewidth=0.5, zorder=2,
                    label=f"{label} ({number})")  # fmt: skip
    ax.set_xticks(range(len(budgets)), [f"{b:.4g}" for b in budgets])
    ax.set_xlim(-0.5, len(budgets) - 0.5)
    found = [f"{a.low:.4g} → {a.high:.4g}: " + ("-" if math.isnan(a.rho) else f"{a.rho:.2f}") + f" ({a.configurations})"
             for a in agreements(records)]  # fmt: skip
    told = "rank correlation (configurations)  " + ",  ".join(found) if found else "one budget: no ranks to compare"
    ax.set_title(told, fontsize=8.5)


def _aside(record: Record) -> float:
    """Small horizontal offset, the same for all trials of a configuration, so that equal losses stay visible."""
    return 0.24 * ((record.trial.config_id[0] * 0.414 + (record.trial.config_id[2] + 1) * 0.618034) % 1 - 0.5)


def _y(scale: LossScale, record: Record) -> float:
    return scale.place(record.result.loss) if succeeded(record) else 1.1


def _over_time(ax: Axes, records: Sequence[Record], scale: LossScale, budgets: Sequence[float]) -> None:
    top = next((r.trial.budget for r in ranked(records)), math.nan)
    spent = np.cumsum([r.trial.budget for r in records]) / budgets[-1]
    for shade, b in zip(budget_colours(len(budgets)), budgets):
        here = [(s, _y(scale, r)) for s, r in zip(spent, records) if r.trial.budget == b]
        ax.plot(*zip(*here), "o", color=shade, markersize=5, markeredgecolor="white", markeredgewidth=0.5,
                label=f"budget {b:.4g} ({len(here)})")  # fmt: skip
    x, y, best = [], [], math.inf
    for s, r in zip(spent, records):
        if r.trial.budget == top and r.result.loss < best:
            best = r.result.loss
            x.append(s)
            y.append(scale.place(best))
    if x:
        ax.step([*x, spent[-1]], [*y, y[-1]], where="post", color=GREEN, linewidth=1.8, zorder=3,
                label=f"best at {top:.4g}: {precise(best)}")  # fmt: skip
    ax.set_xlim(0, 1.03 * spent[-1])
    ax.set_xlabel(f"budgets spent, in trials of {budgets[-1]:.4g}")
    ax.set_title("Over time", fontsize=8.5)


def importance_bars(path: Path, importance: Importance, title: str) -> None:
    """Writes a PNG (150 dpi): the share of every parameter; hatched if only some of the trials have it."""
    shares = importance.shares
    names = short_names(list(shares))
    figure, (ax,) = new_figure(7.5, max(2.2, 1.3 + 0.3 * len(shares)))
    unknown = "" if shares else f"\nimportance is not known: {importance.reason}"
    ax.set_title(_text(title) + unknown, fontsize=10)
    ax.grid(visible=False)
    if not shares:
        ax.set_axis_off()
        figure.savefig(path, format="png")
        return
    for k, s in enumerate(shares.values()):
        some = s.trials < importance.trials
        ax.barh(k, 100 * s.share, color=BLUE, alpha=0.45 if some else 0.9, hatch="///" if some else None,
                edgecolor="white")  # fmt: skip
        among = f", among {s.trials} of {importance.trials} trials" if some else ""
        low, high = s.interval or (s.share, s.share)
        if s.interval is not None:
            sides = [[100 * (s.share - low)], [100 * (high - s.share)]]
            ax.errorbar(100 * s.share, k, xerr=sides, color="black", linewidth=1, capsize=2.5)
        ax.text(100 * max(s.share, high), k, f" {100 * s.share:.1f} %{among}", va="center", fontsize=8)
    ax.set_yticks(range(len(shares)), [_text(names[n]) for n in shares], fontsize=9)
    ax.invert_yaxis()
    widest = max(s.interval[1] if s.interval else s.share for s in shares.values())
    ax.set_xlim(0, 118 * max(0.05, widest))
    what = "variance of the loss explained" if importance.method == FANOVA else "what sets the best trials apart"
    ax.set_xlabel(f"{what}, % ({importance.method}, {importance.trials} trials at budget {importance.budget:.4g})"
                  + ("\nwhiskers: 95 % interval over trials" if any(s.interval for s in shares.values()) else ""),
                  fontsize=9)  # fmt: skip
    figure.savefig(path, format="png")
