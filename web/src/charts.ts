// Figures over time that zoom together. The page has each as a drawing already; where this runs it takes the drawing's place on a screen,
// and paper keeps the drawing.

import { Chart, type Span } from "./chart";
import type { Figure } from "./data";
import { make } from "./dom";

/** Zooming in ends at this share of the whole. */
const CLOSEST = 1e-4;

class Group {
    private readonly charts: Chart[];
    private readonly end: number;
    private span: Span;
    private cursor: number | null = null;
    private readonly whole: HTMLButtonElement;

    constructor(element: HTMLElement) {
        const places = [...element.querySelectorAll<HTMLElement>("[data-figure]")];
        const figures = places.map((place) => JSON.parse(place.querySelector("script")!.textContent!) as Figure);
        this.end = Math.max(...figures.map(({ end_s }) => end_s));
        this.span = [0, this.end];
        const bar = make("p", "live-bar quiet");
        bar.append("Drag over a figure, or move the bar below, to zoom into a time: all figures follow. ");
        this.whole = bar.appendChild(make("button"));
        this.whole.type = "button";
        this.whole.textContent = "Show all";
        this.whole.disabled = true;
        this.whole.addEventListener("click", () => this.zoom([0, this.end]));
        element.prepend(bar);
        this.charts = places.map((place, number) => new Chart(place, figures[number]!, this.end, number === places.length - 1));
        this.charts.forEach((chart) => this.listen(chart));
        const slider = this.charts.at(-1)!;
        slider.echart.on("datazoom", () => {
            const [zoom] = (slider.echart.getOption() as { dataZoom: { startValue: number; endValue: number }[] }).dataZoom;
            if (zoom && (zoom.startValue !== this.span[0] || zoom.endValue !== this.span[1])) this.zoom([zoom.startValue, zoom.endValue], slider);
        });
        let width = element.clientWidth;
        new ResizeObserver(() => {
            if (element.clientWidth === width || element.clientWidth === 0) return;
            width = element.clientWidth;
            this.charts.forEach((chart) => { chart.echart.resize(); chart.draw(); chart.show(this.span); });
        }).observe(element);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.charts.forEach((chart) => chart.draw()));
    }

    /** Shows a span of time in all figures; `except` shows it already. */
    private zoom([from, to]: Span, except?: Chart) {
        const wide = Math.min(Math.max(to - from, this.end * CLOSEST), this.end);
        const start = Math.min(Math.max(from, 0), this.end - wide);
        this.span = [start, start + wide];
        this.whole.disabled = wide >= this.end;
        for (const chart of this.charts) if (chart !== except) chart.show(this.span);
        this.point(this.cursor);
    }

    private point(time: number | null) {
        this.cursor = time !== null && time >= this.span[0] && time <= this.span[1] ? time : null;
        this.charts.forEach((chart) => chart.point(this.cursor));
    }

    private listen(chart: Chart) {
        const { canvas } = chart;
        let begun: { x: number; time: number; id: number } | null = null;
        const chosen = canvas.parentElement!.appendChild(make("div", "live-chosen"));
        chosen.hidden = true;
        const inGrid = (event: PointerEvent) => event.clientY < canvas.getBoundingClientRect().bottom - (canvas.classList.contains("with-slider") ? 60 : 0);
        canvas.addEventListener("pointerdown", (event) => {
            const time = chart.timeAt(event.clientX);
            // A finger scrolls the page; the slider zooms for it.
            if (event.button !== 0 || event.pointerType === "touch" || time === null || !inGrid(event)) return;
            begun = { x: event.clientX, time, id: event.pointerId };
        });
        canvas.addEventListener("pointermove", (event) => {
            const time = chart.timeAt(event.clientX);
            if (inGrid(event) || begun) this.point(time);
            if (!begun) return;
            const left = canvas.getBoundingClientRect().left;
            chosen.hidden = Math.abs(event.clientX - begun.x) < 4;
            chosen.style.left = `${Math.min(event.clientX, begun.x) - left}px`;
            chosen.style.width = `${Math.abs(event.clientX - begun.x)}px`;
        });
        const finish = (event: PointerEvent) => {
            if (!begun || event.pointerId !== begun.id) return;
            const { x, time } = begun;
            begun = null;
            chosen.hidden = true;
            if (Math.abs(event.clientX - x) < 4) return;
            const box = canvas.getBoundingClientRect();
            const to = chart.timeAt(event.clientX) ?? (event.clientX < box.left + box.width / 2 ? this.span[0] : this.span[1]);
            this.zoom(time < to ? [time, to] : [to, time]);
        };
        addEventListener("pointerup", finish);
        canvas.addEventListener("pointerleave", () => { if (!begun) this.point(null); });
        canvas.addEventListener("dblclick", () => this.zoom([0, this.end]));
        canvas.addEventListener("wheel", (event) => {
            // The wheel alone scrolls the page.
            const time = chart.timeAt(event.clientX);
            if (!(event.ctrlKey || event.metaKey) || time === null) return;
            event.preventDefault();
            this.about(time, event.deltaY > 0 ? 1.25 : 0.8);
        }, { passive: false });
        canvas.addEventListener("keydown", (event) => {
            const [from, to] = this.span, wide = to - from, middle = this.cursor ?? (from + to) / 2;
            const way = event.key === "ArrowRight" ? 1 : -1;
            switch (event.key) {
                case "+": case "=": this.about(middle, 0.5); break;
                case "-": this.about(middle, 2); break;
                case "0": this.zoom([0, this.end]); break;
                case "Escape": this.point(null); break;
                case "ArrowLeft": case "ArrowRight":
                    if (event.shiftKey) this.point(Math.min(Math.max(middle + way * wide / 100, from), to));
                    else this.zoom([from + way * wide / 5, to + way * wide / 5]);
                    break;
                default: return;
            }
            event.preventDefault();
        });
    }

    /** Zooms about a time, which stays where it is. */
    private about(time: number, factor: number) {
        const [from, to] = this.span;
        this.zoom([time - (time - from) * factor, time + (to - time) * factor]);
    }
}

document.documentElement.classList.add("with-charts");
for (const element of document.querySelectorAll<HTMLElement>(".timeline")) {
    // What is folded has no width to draw in, and all of a long page at once would take long.
    const folded = element.closest("details:not([open])");
    if (folded) folded.addEventListener("toggle", () => new Group(element), { once: true });
    else new Group(element);
}
