// Still figures: each saves itself as SVG and PNG, and its numbers as CSV. Rust draws them and gives them their numbers
// (`crates/study/report/src/html/page/numbers.rs`). Surfaces are canvases, so they are no SVG (`crates/study/report/src/html/heat.js`).

import { make } from "./dom";
import { buttons, pixels, png, withTitle, type Entry } from "./exports";

/** What of a drawing comes from the page's style, which a file does not have. */
const LOOK = [
    "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "font-weight", "text-anchor",
];

/** The entries of the legend: the figure's own, or the last one of the page before it. */
function legend(svg: SVGSVGElement): Entry[] {
    const shared = [...document.querySelectorAll(".legend")]
        .filter((list) => !list.closest("figure") && list.compareDocumentPosition(svg) & Node.DOCUMENT_POSITION_FOLLOWING);
    const list = svg.closest("figure")?.querySelector(".legend") ?? shared.at(-1);
    return [...list?.querySelectorAll("li") ?? []].map((item) => {
        const { fill, fillOpacity, stroke } = getComputedStyle(item.querySelector("rect, line, path") ?? item);
        return { name: item.textContent!.trim(), fill: fill === "none" || stroke !== "none" ? stroke : fill, opacity: Number(fillOpacity) };
    });
}

/** The drawing as a file, with what it refers to. */
function drawing(svg: SVGSVGElement, title: string): string {
    const copy = svg.cloneNode(true) as SVGSVGElement;
    const copies = copy.querySelectorAll<SVGElement>("*");
    svg.querySelectorAll("*").forEach((element, n) => {
        const style = getComputedStyle(element);
        for (const name of LOOK) {
            // An attribute may name a colour of the page.
            copies[n]!.removeAttribute(name);
            copies[n]!.style.setProperty(name, style.getPropertyValue(name));
        }
    });
    const { width, height } = svg.viewBox.baseVal;
    for (const name of ["data-csv", "style", "class"]) copy.removeAttribute(name);
    copy.setAttribute("width", String(width));
    copy.setAttribute("height", String(height));
    copy.prepend(...[...document.querySelectorAll("pattern")].map((pattern) => pattern.cloneNode(true)));
    const says = [...svg.querySelectorAll("text")].some((text) => text.textContent === title);
    return withTitle(copy, [width, height], says ? "" : title, legend(svg));
}

interface Surface {
    column_s: number;
    /** Columns since the cell before, bin, count. */
    cells: number[];
}

/** The cells of a surface: from which time and interval on, and how many. */
function table({ column_s, cells }: Surface): string {
    const rows = ["from_s,from_ns,count"];
    for (let at = 0, column = 0; at < cells.length; at += 3) {
        column += cells[at]!;
        rows.push([Number((column * column_s).toPrecision(9)), Number((2 ** (cells[at + 1]! / 4)).toPrecision(6)), cells[at + 2]].join(","));
    }
    return rows.join("\r\n") + "\r\n";
}

function below(figure: Element, saving: HTMLElement) {
    const place = make("p", "still-buttons");
    place.append(saving);
    figure.after(place);
}

for (const svg of document.querySelectorAll<SVGSVGElement>("svg[data-csv]")) {
    const title = svg.querySelector("title")?.textContent || svg.getAttribute("aria-label") || "figure";
    const csv = () => svg.dataset.csv!.replaceAll("\n", "\r\n") + "\r\n";
    below(svg, buttons(title, () => drawing(svg, title), () => png(drawing(svg, title)), csv));
}
for (const canvas of document.querySelectorAll<HTMLCanvasElement>("canvas.heat")) {
    const data = () => JSON.parse(document.getElementById(canvas.dataset.source!)!.textContent!) as Surface;
    below(canvas, buttons(canvas.getAttribute("aria-label") ?? "surface", null, () => pixels(canvas, 1), () => table(data())));
}
