"""Figures and how they are judged, printed and stored.

A Figure is one number with a unit; with a target it is also judged.  A Sheet collects those of one measurement line, prints
them side by side, and adds them to a JSON-lines or CSV file together with the machine, the budget and the cache's state.
"""
import csv
import json
import math
import os
import statistics
import time

COMPARE = {"<=": lambda value, target: value <= target, ">=": lambda value, target: value >= target,
           "==": lambda value, target: value == target}


def median(values):
    return statistics.median(values)


def p95(values, unit):
    """What 95 % of the runs do not exceed - or, for speeds, do not fall below - by nearest rank: the worst one of fewer than
    twenty."""
    ordered = sorted(values, reverse=unit.endswith("/s"))
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


def show(value, unit):
    """A number for people: bytes scaled, the rest with four digits."""
    if value is None:
        return "-"
    if isinstance(value, (bool, str)):
        return str(value)
    if unit.startswith("byte"):
        for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if abs(value) >= size:
                return f"{value / size:.2f} {name}{unit[5:]}"
    return f"{value:.4g} {unit}".rstrip()


class Figure:
    def __init__(self, name, value, unit="", target=None, compare="<="):
        self.name, self.value, self.unit, self.target, self.compare = name, value, unit, target, compare

    @property
    def good(self):
        """True or False where there is a target; None where there is none.  An unknown value misses its target."""
        if self.target is None:
            return None
        return self.value is not None and COMPARE[self.compare](self.value, self.target)


class Sheet:
    """The figures of one line under one set of conditions."""

    def __init__(self, line, **conditions):
        self.line, self.conditions, self.figures, self.notes = line, conditions, [], []

    def add(self, name, value, unit="", target=None, compare="<="):
        self.figures.append(Figure(name, value, unit, target, compare))
        return value

    def spread(self, name, values, unit):
        """Median and p95 of several runs; the median is returned."""
        if len(values) > 1:
            self.add(f"{name}, p95 of {len(values)}", p95(values, unit), unit)
        return self.add(f"{name}, median of {len(values)}" if len(values) > 1 else name, median(values), unit)

    def note(self, text):
        self.notes.append(text)

    @property
    def good(self):
        return all(figure.good is not False for figure in self.figures)

    def print(self, out):
        said = ", ".join(f"{key} {value}" for key, value in self.conditions.items() if value is not None)
        print(f"\n{self.line}: {said}", file=out)
        width = max((len(figure.name) for figure in self.figures), default=0)
        for f in self.figures:
            wanted = "" if f.target is None else f"{f.compare} {show(f.target, f.unit):<16} {'ok' if f.good else 'MISSED'}"
            print(f"  {f.name:<{width}}  {show(f.value, f.unit):>18}  {wanted}".rstrip(), file=out)
        for text in self.notes:
            print(f"  note: {text}", file=out)
        out.flush()


def records(sheet, context):
    """One flat object per figure."""
    for f in sheet.figures:
        compare = None if f.target is None else f.compare
        yield {"line": sheet.line, "figure": f.name, "value": f.value, "unit": f.unit, "compare": compare, "target": f.target,
               "good": f.good, **context, **sheet.conditions, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def store(sheet, context, json_path, csv_path):
    """Appends a sheet's records to a JSON-lines file and to a CSV file, whichever is given."""
    rows = list(records(sheet, context))
    if json_path:
        with open(json_path, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    if csv_path:
        fields = ["line", "figure", "value", "unit", "compare", "target", "good", "conditions", "context", "time"]
        fresh = not os.path.exists(csv_path) or os.path.getsize(csv_path) == 0
        with open(csv_path, "a", newline="") as file:
            writer = csv.DictWriter(file, fields, extrasaction="ignore")
            if fresh:
                writer.writeheader()
            for row in rows:
                writer.writerow({**row, "conditions": json.dumps(sheet.conditions), "context": json.dumps(context)})
