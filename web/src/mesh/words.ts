// Numbers and times in words, and elements of the page.

import { digits, quantity, type Unit } from "../data";
import { make } from "../dom";

export { make };

const RATES: Unit[] = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];

/** A share of loss: `0 %`, `0.0044 %`, `12 %`. */
export function percent(loss: number | null): string {
    if (loss === null) return "no test";
    const value = loss * 100;
    return value === 0 ? "0 %" : `${value < 1e-4 ? value.toExponential(1) : digits(value, value < 10 ? 2 : 3)} %`;
}

export function rate(bits: number): string {
    return quantity(bits, RATES);
}

const TIMES: Unit[] = [[60e9, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** A time in nanoseconds: `74.6 ms`. */
export function duration(ns: number | null): string {
    return ns === null ? "none" : quantity(ns, TIMES);
}

export function count(number: number): string {
    return number.toLocaleString("en");
}

/** A time in UTC: `2026-01-31 12:00`. */
export function moment(time: string): string {
    return time.slice(0, 16).replace("T", " ");
}

/** The same to the second. */
export function second(time: string): string {
    return `${moment(time)}:${time.slice(17, 19)}`;
}

/** How long ago, or how soon: `3 min ago`, `in 2 h`. */
export function since(time: string, now: number): string {
    const seconds = (now - Date.parse(time)) / 1000;
    const [size, unit] = ([[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]] as Unit[]).find(([size]) => Math.abs(seconds) >= size) ?? [1, "s"];
    const amount = `${Math.round(Math.abs(seconds) / size)} ${unit}`;
    return seconds < 0 ? `in ${amount}` : `${amount} ago`;
}

/** An element with text or other elements in it. */
export function element<Name extends keyof HTMLElementTagNameMap>(name: Name, classes: string, ...inside: (string | Node)[]): HTMLElementTagNameMap[Name] {
    const made = make(name, classes);
    made.append(...inside);
    return made;
}

export function link(address: string, text: string): HTMLAnchorElement {
    const made = element("a", "", text);
    made.href = address;
    return made;
}

/** A table; what is in a cell may be an element. Narrow screens show each row as a block, with the heads
 * beside the values. With the class `facts` it has words, not numbers. */
export function table(heads: string[], rows: (string | Node)[][], caption: string, classes = ""): HTMLElement {
    const made = make("table", classes);
    made.append(element("caption", "unseen", caption));
    const head = made.createTHead().insertRow();
    for (const text of heads) {
        const cell = element("th", "", text);
        cell.scope = "col";
        head.append(cell);
    }
    const body = made.createTBody();
    for (const row of rows) {
        const line = body.insertRow();
        row.forEach((inside, column) => {
            const cell = element(column === 0 ? "th" : "td", "", inside);
            if (column === 0) (cell as HTMLTableCellElement).scope = "row";
            cell.dataset.label = heads[column];
            line.append(cell);
        });
    }
    return element("div", "numbers", made);
}

/** Facts side by side, each with its name. */
export function facts(all: [string, string | Node][]): HTMLElement {
    const list = make("dl", "tiles");
    list.append(...all.map(([name, value]) => element("div", "", element("dt", "", name), element("dd", "", value))));
    return list;
}

/** The middle one; of two in the middle the greater. */
export function median(values: number[]): number | null {
    return [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? null;
}
