// A figure as a file: SVG, PNG, or its data as CSV. Nothing leaves the page but by the browser's own way of saving.

import { make } from "./dom";

/** An entry of a legend. */
export interface Entry {
    name: string;
    fill: string;
    opacity: number;
}

function save(name: string, type: string, content: BlobPart) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A name for a file. */
const named = (title: string, ending: string) =>
    `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "figure"}.${ending}`;

/** Buttons that save the figure `title`: as a drawing if it is one, as a picture, and its numbers. */
export function buttons(title: string, svg: (() => string) | null, picture: () => Promise<Blob>, csv: () => string): HTMLElement {
    const place = make("span", "live-buttons");
    const add = (name: string, what: string, act: () => void) => {
        const button = place.appendChild(make("button"));
        button.type = "button";
        button.textContent = name;
        button.setAttribute("aria-label", `${name} of ${title}: save ${what}`);
        button.title = `Save ${what}`;
        button.addEventListener("click", act);
    };
    if (svg) add("SVG", "as a drawing", () => save(named(title, "svg"), "image/svg+xml", svg()));
    add("PNG", "as a picture", () => void picture().then((blob) => save(named(title, "png"), "image/png", blob)));
    add("CSV", "its numbers as a table", () => save(named(title, "csv"), "text/csv", csv()));
    return place;
}

/** A colour of the page's style, or one by itself. */
export function colour(name: string): string {
    return name.startsWith("--") ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : name;
}

/** The drawing with its title and legend, which stand in the page beside it. */
export function withTitle(drawing: SVGElement, [width, height]: [number, number], title: string, legend: Entry[]): string {
    const text = colour("--text");
    const escaped = (words: string) => words.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign] ?? "&quot;");
    const first = title === "" ? 22 : 44;
    let x = 12, row = first;
    const entries = legend.map(({ name, fill, opacity }) => {
        const wide = 26 + name.length * 6.6;
        if (x + wide > width && x > 12) { x = 12; row += 18; }
        const entry = `<rect x="${x}" y="${row - 9}" width="12" height="9" rx="2" fill="${escaped(fill)}" fill-opacity="${opacity}"/>` +
            `<text x="${x + 17}" y="${row}" font-size="12" fill="${text}">${escaped(name)}</text>`;
        x += wide;
        return entry;
    }).join("");
    const top = entries === "" ? first - 12 : row + 10;
    const inner = new XMLSerializer().serializeToString(drawing).replace(/^<svg /, `<svg y="${top}" `);
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height + top}" viewBox="0 0 ${width} ${height + top}" font-family="system-ui, sans-serif">` +
        `<rect width="100%" height="100%" fill="${colour("--ground")}"/><text x="12" y="22" font-size="15" font-weight="600" fill="${text}">${escaped(title)}</text>${entries}${inner}</svg>`;
}

/** `source` as pixels on the page's ground, `scale` for each of its own. */
export async function pixels(source: HTMLImageElement | HTMLCanvasElement, scale: number): Promise<Blob> {
    const canvas = document.createElement("canvas");
    canvas.width = source.width * scale;
    canvas.height = source.height * scale;
    const context = canvas.getContext("2d")!;
    context.fillStyle = colour("--ground");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(source, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, failed) => canvas.toBlob((blob) => blob ? done(blob) : failed(new Error("no picture")), "image/png"));
}

/** The drawing as pixels, two for each of the screen's. */
export async function png(svg: string): Promise<Blob> {
    const image = new Image();
    image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    await image.decode();
    const picture = await pixels(image, 2);
    URL.revokeObjectURL(image.src);
    return picture;
}
