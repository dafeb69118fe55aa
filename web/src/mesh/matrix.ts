// The matrix of all sites: a row sends, a column receives. One cell has the focus; arrows move it, Enter opens the pair.

import type { Pair, Pairs, Site } from "./api";
import { count, element, make, percent } from "./words";

/** Shares of loss that begin a colour, and what the legend says of each. */
export const STEPS: [number, string][] = [[0, "0"], [1e-9, "below 0.01 %"], [1e-4, "0.01 %"], [1e-3, "0.1 %"], [1e-2, "1 %"], [1e-1, "10 % or more"]];

/** The class of a cell: how much it lost. */
export function shade(loss: number | null): string {
    return loss === null ? "untested" : `loss-${STEPS.filter(([from]) => loss >= from).length - 1}`;
}

/** What fits into a cell, in percent. */
function short(loss: number | null): string {
    if (loss === null) return "";
    return loss > 0 && loss < 1e-4 ? "<0.01" : percent(loss).replace(" %", "");
}

/** Up to so many sites the cells have numbers in them. */
const WITH_NUMBERS = 12;
/** A pair that no test of this span has. */
const NONE = { tests: 0, sent_packets: 0, lost_packets: 0, loss: null };

export class Matrix {
    readonly place = element("div", "matrix-place");
    private readonly grid = make("div", "matrix");
    private readonly readout = element("p", "readout", "");
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
        this.grid.setAttribute("aria-label", "Loss between all sites: a row sends, a column receives");
        this.readout.setAttribute("aria-live", "polite");
        this.place.append(scroll, this.readout, legend());
        this.grid.addEventListener("keydown", (event) => this.key(event));
        this.grid.addEventListener("click", (event) => this.at(event.target, (row, column) => { this.move(row, column); this.enter(); }));
        this.grid.addEventListener("pointerover", (event) => this.at(event.target, (row, column) => this.read(row, column)));
        this.grid.addEventListener("pointerleave", () => this.read(...this.focus));
        this.grid.addEventListener("focusin", (event) => this.at(event.target, (row, column) => this.read(row, column)));
    }

    /** Shows these sums. The cells stay, so that neither focus nor place of reading is lost. */
    show(sites: Site[], { pairs }: Pairs) {
        this.pairs = new Map(pairs.map((pair) => [`${pair.sender} ${pair.receiver}`, pair]));
        const names = sites.map(({ name }) => name);
        if (names.join(" ") !== this.names.join(" ")) this.build(names);
        this.cells.forEach((row, from) => row.forEach((cell, to) => {
            if (from === to) return;
            const { loss } = this.pair(from, to);
            cell.className = `cell ${shade(loss)}`;
            // Drawn by the style: who listens hears the label alone.
            if (names.length <= WITH_NUMBERS) cell.dataset.percent = short(loss);
            cell.setAttribute("aria-label", this.words(from, to));
        }));
        this.read(...this.focus);
    }

    private pair(from: number, to: number): Omit<Pair, "sender" | "receiver"> {
        return this.pairs.get(`${this.names[from]} ${this.names[to]}`) ?? NONE;
    }

    private words(from: number, to: number): string {
        const { loss, tests, sent_packets, lost_packets } = this.pair(from, to);
        const numbers = tests === 0 ? "no test" : `${percent(loss)} lost, ${count(lost_packets)} of ${count(sent_packets)} packets, ${count(tests)} tests`;
        return `${this.names[from]} to ${this.names[to]}: ${numbers}`;
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

function legend(): HTMLElement {
    const list = make("ul", "legend");
    const entry = (classes: string, text: string) => list.append(element("li", "", element("i", `swatch ${classes}`), text));
    entry("untested", "no test");
    STEPS.forEach(([from, text], step) => entry(shade(from), step === 0 ? "nothing lost" : step >= 2 && step < 5 ? `from ${text}` : text));
    return list;
}
