// The matrix of all sites: a row sends, a column receives. One cell has the focus; arrows move it, Enter opens the pair.

import type { Figures, Pair, Pairs, Site } from "./api";
import { metricOf, NONE, type Metric } from "./metrics";
import { element, make } from "./words";

/** Up to so many sites the cells have numbers in them. */
const WITH_NUMBERS = 12;

export class Matrix {
    readonly place = element("div", "matrix-place");
    private readonly grid = make("div", "matrix");
    private readonly readout = element("p", "readout", "");
    private readonly legend = make("ul", "legend");
    private metric: Metric = metricOf("loss");
    private cells: HTMLElement[][] = [];
    private names: string[] = [];
    private pairs = new Map<string, Pair>();
    private focus: [number, number] = [0, 1];
    private readonly open: (sender: string, receiver: string) => void;

    constructor(open: (sender: string, receiver: string) => void) {
        this.open = open;
        const scroll = element("div", "matrix-scroll", this.grid);
        // It scrolls by itself where a screen is narrow; a key does that, too.
        this.grid.setAttribute("role", "grid");
        this.readout.setAttribute("aria-live", "polite");
        this.place.append(scroll, this.readout, this.legend);
        this.grid.addEventListener("keydown", (event) => this.key(event));
        this.grid.addEventListener("click", (event) => this.at(event.target, (row, column) => { this.move(row, column); this.enter(); }));
        this.grid.addEventListener("pointerover", (event) => this.at(event.target, (row, column) => this.read(row, column)));
        this.grid.addEventListener("pointerleave", () => this.read(...this.focus));
        this.grid.addEventListener("focusin", (event) => this.at(event.target, (row, column) => this.read(row, column)));
    }

    /** Shows these figures. The cells stay, so that neither focus nor place of reading is lost. */
    show(sites: Site[], { pairs, metric }: Pairs) {
        this.pairs = new Map(pairs.map((pair) => [`${pair.sender} ${pair.receiver}`, pair]));
        const names = sites.map(({ name }) => name);
        if (names.join(" ") !== this.names.join(" ")) this.build(names);
        this.metric = metricOf(metric);
        const about = this.metric.both ? "" : ": a row sends, a column receives";
        this.grid.setAttribute("aria-label", `${this.metric.title} between all sites${about}`);
        this.cells.forEach((row, from) => row.forEach((cell, to) => {
            if (from === to) return;
            const pair = this.pair(from, to);
            cell.className = `cell ${this.metric.shade(pair)}`;
            // Drawn by the style: who listens hears the label alone.
            if (names.length <= WITH_NUMBERS) cell.dataset.short = this.metric.short(pair);
            cell.setAttribute("aria-label", this.words(from, to));
        }));
        const entries: [string, string][] = [["untested", "no test"], ...this.metric.legend];
        this.legend.replaceChildren(...entries.map(([shade, text]) => element("li", "", element("i", `swatch ${shade}`), text)));
        this.read(...this.focus);
    }

    private pair(from: number, to: number): Figures {
        const [one, other] = [this.names[from], this.names[to]];
        return this.pairs.get(`${one} ${other}`) ?? (this.metric.both ? this.pairs.get(`${other} ${one}`) : undefined) ?? NONE;
    }

    private words(from: number, to: number): string {
        const pair = this.pair(from, to);
        const word = this.metric.both ? "and" : "to";
        return `${this.names[from]} ${word} ${this.names[to]}: ${pair.tests === 0 ? "no test" : this.metric.words(pair)}`;
    }

    private build(names: string[]) {
        this.names = names;
        this.focus = [0, Math.min(1, names.length - 1)];
        this.grid.classList.toggle("dense", names.length > WITH_NUMBERS);
        const row = (...inside: Node[]) => {
            const made = element("div", "matrix-row", ...inside);
            made.setAttribute("role", "row");
            return made;
        };
        const head = (role: string, classes: string, text: string) => {
            const made = element("div", classes, element("span", "", text));
            made.setAttribute("role", role);
            return made;
        };
        const corner = head("columnheader", "corner", "from \\ to");
        this.cells = names.map((_, from) => names.map((_, to) => {
            const cell = make("div", from === to ? "cell same" : "cell");
            cell.setAttribute("role", "gridcell");
            cell.dataset.at = `${from} ${to}`;
            if (from === to) cell.setAttribute("aria-label", "the same site"); else cell.tabIndex = -1;
            return cell;
        }));
        const rows = names.map((name, from) => row(head("rowheader", "from", name), ...this.cells[from]!));
        this.grid.replaceChildren(row(corner, ...names.map((name) => head("columnheader", "to", name))), ...rows);
        const first = this.cells[this.focus[0]]?.[this.focus[1]];
        if (first && names.length > 1) first.tabIndex = 0;
    }

    private at(target: EventTarget | null, act: (row: number, column: number) => void) {
        const at = target instanceof Element ? target.closest<HTMLElement>("[data-at]")?.dataset.at : undefined;
        const [row, column] = at?.split(" ").map(Number) ?? [];
        if (row !== undefined && column !== undefined && row !== column) act(row, column);
    }

    private read(row: number, column: number) {
        this.readout.textContent = row === column ? "" : this.words(row, column);
        this.grid.querySelectorAll(".pointed").forEach((head) => head.classList.remove("pointed"));
        this.grid.children[row + 1]?.children[0]?.classList.add("pointed");
        this.grid.children[0]?.children[column + 1]?.classList.add("pointed");
    }

    private move(row: number, column: number) {
        this.cells[this.focus[0]]![this.focus[1]]!.tabIndex = -1;
        this.focus = [row, column];
        const cell = this.cells[row]![column]!;
        cell.tabIndex = 0;
        cell.focus();
    }

    private enter() {
        this.open(this.names[this.focus[0]]!, this.names[this.focus[1]]!);
    }

    private key(event: KeyboardEvent) {
        const last = this.names.length - 1;
        let [row, column] = this.focus;
        const [down, right] = ({ ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] } as Record<string, [number, number]>)[event.key] ?? [0, 0];
        if (event.key === "Enter" || event.key === " ") this.enter();
        else if (event.key === "Home") column = row === 0 ? 1 : 0;
        else if (event.key === "End") column = row === last ? last - 1 : last;
        else if (down || right) {
            [row, column] = [row + down, column + right];
            // Nothing is tested from a site to itself.
            if (row === column) [row, column] = [row + down, column + right];
        } else return;
        event.preventDefault();
        if (row >= 0 && column >= 0 && row <= last && column <= last && row !== column) this.move(row, column);
    }
}
