// What a page says of a figure: JSON in a script element that is no script. `crates/study/report/src/html/over_time/mod.rs` writes it.

/** The size of a unit and its name. */
export type Unit = [number, string];

/** Values at times in seconds. `null` in all lists at one place parts it. */
export interface Line {
    name: string;
    colour: string;
    /** Each value holds until the next time. */
    steps: boolean;
    at: (number | null)[];
    values: (number | null)[];
}

/** The least and the greatest value around each time. */
export interface Band {
    name: string;
    colour: string;
    at: (number | null)[];
    low: (number | null)[];
    high: (number | null)[];
}

/** Parts of a sum, from below upwards. Each value holds for `step_s`, the first from 0 on. */
export interface Stack {
    step_s: number;
    parts: { name: string; colour: string; faint: boolean; values: number[] }[];
}

export interface Figure {
    title: string;
    what: string;
    units: Unit[];
    since: string;
    end_s: number;
    lines: Line[];
    bands: Band[];
    stack: Stack | null;
    /** Stretches of time without a measurement. */
    gaps: [number, number][];
    marks: { name: string; at: number[] };
    /** A moment and what happened. */
    events: [number, string][];
}

/** What can be switched on and off: a line, a band or a part of a stack, as points [time, low, high] or [time, value]. */
export interface Trace {
    name: string;
    colour: string;
    kind: "line" | "band" | "part";
    faint: boolean;
    steps: boolean;
    points: (number | null)[][];
}

/** All that a figure draws. */
export function traces(figure: Figure): Trace[] {
    const bands = figure.bands.map(({ name, colour, at, low, high }): Trace => ({
        name, colour, kind: "band", faint: false, steps: false,
        points: at.map((time, n) => [time, low[n] ?? null, high[n] ?? null]),
    }));
    const lines = figure.lines.map(({ name, colour, steps, at, values }): Trace => ({
        name, colour, kind: "line", faint: false, steps,
        points: at.map((time, n) => [time, values[n] ?? null]),
    }));
    const step = figure.stack?.step_s ?? 0;
    const parts = (figure.stack?.parts ?? []).map(({ name, colour, faint, values }): Trace => {
        const points = values.map((value, n) => [n * step, value]);
        // The last value holds for its time, too.
        points.push([Math.min(values.length * step, figure.end_s), values.at(-1) ?? 0]);
        return { name, colour, kind: "part", faint, steps: true, points };
    });
    return [...bands, ...lines, ...parts];
}

/** The point of `trace` that stands for `time`: the last before it of steps, else the nearest; `null` where it has none. */
export function pointAt(trace: Trace, time: number): (number | null)[] | null {
    const { points, steps } = trace;
    let low = 0, end = points.length;
    while (low < end) {
        const middle = (low + end) >> 1;
        // A place that parts has no time: that of the point before it.
        let known = middle;
        while (known > low && points[known]![0] === null) known--;
        if ((points[known]![0] ?? -Infinity) <= time) low = middle + 1; else end = middle;
    }
    const before = points[low - 1], after = points[low];
    if (before === undefined || before[0] === null) return null;
    if (steps || after === undefined || after[0] === null || after[0] === undefined) return before;
    return time - before[0]! <= after[0] - time ? before : after;
}

/** A number with as many digits as count. */
export function digits(value: number, count = 4): string {
    if (value !== 0 && Math.abs(value) >= 10 ** (count - 1)) return Math.round(value).toString();
    return Number(value.toPrecision(count)).toString();
}

/** The largest unit that `value` has one of. */
export function unitOf(value: number, units: Unit[]): Unit {
    return units.find(([size]) => Math.abs(value) >= size * 0.9999) ?? units.at(-1) ?? [1, ""];
}

/** `value` with its unit. */
export function quantity(value: number, units: Unit[]): string {
    const [size, name] = unitOf(value, units);
    return `${digits(value / size)} ${name}`.trim();
}

export const TIMES: Unit[] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];

/** A table of all values, in the smallest unit, a row for each time. */
export function csv(figure: Figure): string {
    const unit = figure.units.at(-1)?.[1] ?? "";
    const all = traces(figure);
    const heads = all.flatMap(({ name, kind }) => kind === "band" ? [`${name}, least`, `${name}, greatest`] : [name]);
    const rows = new Map<number, (number | null)[]>();
    let column = 0;
    for (const trace of all) {
        for (const [time, ...values] of trace.points) {
            if (time === null || time === undefined) continue;
            const row = rows.get(time) ?? new Array<number | null>(heads.length).fill(null);
            values.forEach((value, n) => { row[column + n] = value ?? null; });
            rows.set(time, row);
        }
        column += trace.kind === "band" ? 2 : 1;
    }
    // A name that a spreadsheet would take for a formula begins with an apostrophe.
    const named = (text: string) => /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    const quoted = (text: string) => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const head = ["time_s", ...heads.map((name) => unit ? `${name} (${unit})` : name)].map(named).map(quoted).join(",");
    const sorted = [...rows].sort(([one], [other]) => one - other);
    return [head, ...sorted.map(([time, row]) => [time, ...row.map((value) => value ?? "")].join(","))].join("\r\n") + "\r\n";
}
