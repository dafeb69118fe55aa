// How the loss of tests is spread, on a logarithmic scale: figure 2 of the NLR Rings paper, which TeraGrid's probes drew.

import type { Losses } from "./api";
import { count, element, moment, percent, table } from "./words";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [640, 220, 44, 34, 12];
/** From one packet in a million to all. */
const [LEAST, MOST] = [-6, 0];

function draw(name: string, attributes: Record<string, string | number>, text = ""): SVGElement {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    made.textContent = text;
    return made;
}

const x = (share: number) => LEFT + (Math.log10(share) - LEAST) / (MOST - LEAST) * (WIDTH - LEFT - 8);

export function histogram({ span, tests, without_loss, buckets }: Losses): HTMLElement {
    const part = (number: number) => tests === 0 ? 0 : number / tests;
    const most = Math.max(...buckets.map((bucket) => part(bucket.tests)), 1e-9);
    const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25].find((step) => most / step <= 4) ?? 0.25;
    const top = Math.ceil(most / step) * step;
    const y = (share: number) => HEIGHT - BOTTOM - share / top * (HEIGHT - BOTTOM - TOP);
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    const said = `${count(tests)} tests: ${percent(part(without_loss))} of them lost nothing.`;
    svg.setAttribute("aria-label", `Share of tests by the share of packets that they lost. ${said} The table below has all numbers.`);
    for (let share = 0; share <= top * 1.001; share += step) {
        svg.append(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - 8, y1: y(share), y2: y(share) }));
        svg.append(draw("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, percent(share)));
    }
    for (let power = LEAST; power <= MOST; power++) {
        svg.append(draw("line", { class: "axis", x1: x(10 ** power), x2: x(10 ** power), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
        // Between the first two there is no room.
        if (power === LEAST + 1) continue;
        const words = `${power === LEAST ? "≤ " : ""}${Number((10 ** (power + 2)).toPrecision(1))} %`;
        svg.append(draw("text", { x: x(10 ** power), y: HEIGHT - BOTTOM + 18, "text-anchor": power === LEAST ? "start" : power === MOST ? "end" : "middle" }, words));
    }
    for (const bucket of buckets) {
        const [from, below] = [x(bucket.from), x(bucket.below)];
        svg.append(draw("rect", { class: "bar", x: from + 0.5, width: below - from - 1, y: y(part(bucket.tests)), height: HEIGHT - BOTTOM - y(part(bucket.tests)) }));
    }
    svg.append(draw("line", { class: "axis", x1: LEFT, x2: WIDTH - 8, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
    const rows = buckets.map((bucket) => [`${percent(bucket.from)} to ${percent(bucket.below)}`, count(bucket.tests), percent(part(bucket.tests))]);
    const numbers = element("details", "", element("summary", "", "Numbers"),
        table(["Packets lost", "Tests", "Share of all tests"], [["nothing", count(without_loss), percent(part(without_loss))], ...rows], "Tests by the share that they lost"));
    const caption = element("figcaption", "", `${said} The others, by the share of packets that each lost, on a logarithmic scale. From ${moment(span.from)} to ${moment(span.until)} UTC.`);
    const figure = element("figure", "histogram", svg, caption, numbers);
    return figure;
}
