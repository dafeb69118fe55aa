// A figure as a file: SVG, PNG, or its data as CSV. Nothing leaves the page but by the browser's own way of saving.

import type { Trace } from "./data";

export function save(name: string, type: string, content: BlobPart) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A name for a file. */
export const named = (title: string, ending: string) =>
    `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "figure"}.${ending}`;

/** The drawing with its title and legend, which stand in the page beside it. */
export function withTitle(drawing: SVGSVGElement, title: string, shown: { trace: Trace; colour: string }[], ground: string, text: string): string {
    const width = drawing.clientWidth || 800, height = drawing.clientHeight || 300;
    const escaped = (words: string) => words.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]!);
    let x = 12, row = 44;
    const entries = shown.map(({ trace, colour }) => {
        const wide = 26 + trace.name.length * 6.6;
        if (x + wide > width && x > 12) { x = 12; row += 18; }
        const entry = `<rect x="${x}" y="${row - 9}" width="12" height="9" rx="2" fill="${colour}" fill-opacity="${trace.faint ? 0.45 : 1}"/>` +
            `<text x="${x + 17}" y="${row}" font-size="12" fill="${text}">${escaped(trace.name)}</text>`;
        x += wide;
        return entry;
    }).join("");
    const top = row + 10;
    const inner = new XMLSerializer().serializeToString(drawing).replace(/^<svg /, `<svg y="${top}" `);
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height + top}" viewBox="0 0 ${width} ${height + top}" font-family="system-ui, sans-serif">` +
        `<rect width="100%" height="100%" fill="${ground}"/><text x="12" y="22" font-size="15" font-weight="600" fill="${text}">${escaped(title)}</text>${entries}${inner}</svg>`;
}

/** The drawing as pixels, two for each of the screen's. */
export async function png(svg: string): Promise<Blob> {
    const image = new Image();
    image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width * 2;
    canvas.height = image.height * 2;
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    return await new Promise((done, failed) => canvas.toBlob((blob) => blob ? done(blob) : failed(new Error("no picture")), "image/png"));
}
