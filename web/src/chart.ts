// One figure: its drawing, its legend with the values at the pointer, its buttons.

import { LineChart } from "echarts/charts";
import { DataZoomSliderComponent, GridSimpleComponent, MarkAreaComponent, MarkLineComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import { csv, digits, pointAt, quantity, traces, unitOf, TIMES, type Figure, type Trace } from "./data";
import { make } from "./dom";
import { buttons, colour, png, withTitle } from "./exports";

// The grid without a pointer on its axes: this page has its own.
echarts.use([LineChart, GridSimpleComponent, DataZoomSliderComponent, MarkLineComponent, MarkAreaComponent, SVGRenderer]);

/** An axis begins at its least value where that is above this share of the greatest: a round trip of 250.01 to 250.03 ms is no flat line. */
const NARROW = 0.6;

export type Span = [number, number];

export class Chart {
    readonly figure: Figure;
    readonly canvas: HTMLDivElement;
    readonly echart: echarts.ECharts;
    private readonly all: Trace[];
    private readonly hidden = new Set<string>();
    private readonly values = new Map<string, HTMLElement>();
    private readonly cursor: HTMLDivElement;
    private readonly when: HTMLElement;
    private readonly end: number;
    /** Has the slider of the group. */
    private readonly last: boolean;

    constructor(element: HTMLElement, figure: Figure, end: number, last: boolean) {
        this.figure = figure;
        this.all = traces(figure);
        this.end = end;
        this.last = last;
        const live = element.insertBefore(make("div", "live"), element.querySelector("figcaption"));
        const head = live.appendChild(make("div", "live-head"));
        const title = head.appendChild(make("h3"));
        title.textContent = figure.title;
        this.when = head.appendChild(make("span", "when quiet"));
        head.appendChild(buttons(figure.title, () => this.svg(), () => png(this.svg()), () => csv(figure)));
        live.appendChild(this.legend());
        const frame = live.appendChild(make("div", "live-frame"));
        this.canvas = frame.appendChild(make("div", "live-canvas"));
        this.canvas.classList.toggle("with-slider", last);
        this.canvas.tabIndex = 0;
        this.canvas.setAttribute("role", "img");
        this.canvas.setAttribute("aria-label", this.summary());
        this.cursor = frame.appendChild(make("div", "live-cursor"));
        this.cursor.hidden = true;
        this.echart = echarts.init(this.canvas, undefined, { renderer: "svg" });
        this.draw();
    }

    /** A time as the axis has it: in the unit of the whole, however near one looks. */
    private moment(time: number): string {
        const [size, unit] = unitOf(this.end, TIMES);
        return `${digits(time / size, 5)} ${unit}`;
    }

    /** Draws all that is not hidden, in the colours of now. */
    draw() {
        const [text, quiet, line, lost, gap, raised] = ["--text", "--quiet", "--line", "--lost", "--gap", "--raised"].map(colour);
        const { figure } = this;
        const shown = this.all.filter(({ name }) => !this.hidden.has(name));
        const narrow = this.canvas.clientWidth < 560;
        const [least, most] = this.extent(shown);
        const [size, unit] = unitOf(most, figure.units);
        // So that the axis has round numbers of the unit.
        const scaled = (value: number | null | undefined) => value === null || value === undefined ? null : value / size;
        const share = unit === "%" && (figure.stack !== null || most > 50);
        const series: object[] = shown.flatMap((trace, number): object[] => {
            const own = colour(trace.colour);
            const shared = { type: "line", symbol: "none", silent: true, animation: false, name: trace.name };
            if (trace.kind === "band") {
                const area = { ...shared, stack: `band ${number}`, lineStyle: { width: 0 } };
                const [low, span] = [
                    trace.points.map(([time, low]) => [time, scaled(low)]),
                    trace.points.map(([time, low, high]) => [time, high === null ? null : scaled(high! - low!)]),
                ];
                return [{ ...area, data: low }, {
                    ...area, data: span, lineStyle: { width: 0.8, color: own, opacity: 0.7 }, areaStyle: { color: own, opacity: 0.45 },
                }];
            }
            const data = trace.points.map(([time, value]) => [time, scaled(value)]);
            const step = trace.steps ? "end" : false;
            return trace.kind === "part"
                ? [{ ...shared, data, step, stack: "parts", lineStyle: { width: 0 }, areaStyle: { color: own, opacity: trace.faint ? 0.45 : 0.85 } }]
                : [{ ...shared, data, step, lineStyle: { width: 1.6, color: own, join: "round" } }];
        });
        series.push({
            type: "line", data: [], silent: true, animation: false,
            markArea: { silent: true, itemStyle: { color: gap, opacity: 0.7 }, data: figure.gaps.map(([from, to]) => [{ xAxis: from }, { xAxis: to }]) },
            markLine: {
                silent: true, symbol: "none", animation: false,
                data: [
                    ...this.hidden.has(figure.marks.name) ? [] : figure.marks.at.map((at) => ({
                        xAxis: at, label: { show: false }, lineStyle: { color: lost, width: 1, type: "solid", opacity: 0.55 },
                    })),
                    ...figure.events.map(([at, name]) => ({
                        xAxis: at, lineStyle: { color: text, width: 1.2, type: [5, 3], opacity: 0.8 },
                        label: { show: true, formatter: name, color: text, fontSize: 11, position: "insideEndTop", rotate: 0, align: at > this.end * 0.8 ? "right" : "left" },
                    })),
                ],
            },
        });
        this.echart.setOption({
            animation: false,
            textStyle: { fontFamily: "system-ui, sans-serif" },
            grid: { left: narrow ? 52 : 66, right: 16, top: 22, bottom: this.last ? 66 : 24 },
            xAxis: {
                type: "value", min: 0, max: this.end, axisLine: { lineStyle: { color: quiet } }, splitLine: { show: false },
                splitNumber: narrow ? 4 : 8, axisLabel: { color: text, hideOverlap: true, showMaxLabel: false, formatter: (at: number) => this.moment(at) },
            },
            yAxis: {
                type: "value", name: `${figure.what}${unit}`, nameLocation: "end", nameGap: 8,
                nameTextStyle: { color: quiet, align: "left", padding: [0, 0, 0, narrow ? -46 : -58] },
                scale: figure.stack === null && least > most * NARROW, min: figure.stack ? 0 : undefined,
                max: share ? 100 : undefined, interval: share ? 25 : undefined,
                splitNumber: 4, splitLine: { lineStyle: { color: line } },
                axisLabel: { color: text, formatter: (value: number) => digits(value, 5) },
            },
            dataZoom: [{
                type: "slider", show: this.last, filterMode: figure.stack ? "none" : "filter", realtime: true, height: 22, bottom: 8, brushSelect: false,
                borderColor: line, backgroundColor: raised, fillerColor: "rgba(86, 140, 200, .22)", showDataShadow: false,
                textStyle: { color: quiet }, labelFormatter: (at: number) => this.moment(at), handleStyle: { color: quiet }, moveHandleStyle: { color: line },
            }],
            series,
        }, { replaceMerge: ["series"] });
    }

    /** The least value and the greatest, of parts the greatest sum. */
    private extent(shown: Trace[]): Span {
        const sums: number[] = [];
        let [least, most] = [Infinity, 0];
        for (const { kind, points } of shown) {
            points.forEach(([, ...values], n) => {
                for (const value of values) {
                    if (value === null) continue;
                    if (kind === "part") sums[n] = (sums[n] ?? 0) + value; else most = Math.max(most, value);
                    least = Math.min(least, value);
                }
            });
        }
        return [least, sums.reduce((most, sum) => Math.max(most, sum), most)];
    }

    /** For whoever does not see it. */
    private summary(): string {
        const { units } = this.figure;
        const of = this.all.map((trace) => {
            const values = trace.points.flatMap(([, ...values]) => values).filter((value): value is number => value !== null);
            const [least, most] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity] as Span);
            return values.length === 0 ? `${trace.name}: nothing` : `${trace.name}: ${quantity(least, units)} to ${quantity(most, units)}`;
        });
        return `${this.figure.title} over ${this.moment(this.end)}. ${of.join("; ")}. Keys: plus and minus zoom, arrows move, Shift and arrows read values, 0 shows all.`;
    }

    private legend(): HTMLElement {
        const list = make("ul", "live-legend");
        const { marks, gaps } = this.figure;
        const entry = (name: string, colour: string, faint: boolean, toggles: boolean) => {
            const item = list.appendChild(make("li"));
            const button = item.appendChild(make(toggles ? "button" : "span"));
            const swatch = button.appendChild(make("i"));
            swatch.style.background = colour.startsWith("--") ? `var(${colour})` : colour;
            swatch.style.opacity = faint ? "0.45" : "1";
            button.append(name);
            const value = button.appendChild(make("b"));
            this.values.set(name, value);
            if (button instanceof HTMLButtonElement) {
                button.type = "button";
                button.setAttribute("aria-pressed", "true");
                button.addEventListener("click", () => {
                    if (!this.hidden.delete(name)) this.hidden.add(name);
                    button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
                    this.draw();
                });
            }
        };
        for (const { name, colour, faint } of this.all) entry(name, colour, faint, true);
        if (marks.at.length > 0) entry(marks.name, "--lost", false, true);
        if (gaps.length > 0) entry("not captured", "--gap", false, false);
        return list;
    }

    /** Shows the values at `time`; `null` shows none. */
    point(time: number | null) {
        this.cursor.hidden = time === null;
        this.when.textContent = time === null ? "" : `at ${this.moment(time)}`;
        if (time !== null) this.cursor.style.left = `${this.echart.convertToPixel({ xAxisIndex: 0 }, time)}px`;
        for (const trace of this.all) {
            const found = time === null ? null : pointAt(trace, time);
            const values = found?.slice(1).filter((value): value is number => value !== null) ?? [];
            this.values.get(trace.name)!.textContent = values.map((value) => quantity(value, this.figure.units)).join(" – ");
        }
    }

    /** The time below a place of the page; `null` outside of the drawing. */
    timeAt(clientX: number): number | null {
        const x = clientX - this.canvas.getBoundingClientRect().left;
        return this.echart.containPixel({ gridIndex: 0 }, [x, 40]) ? this.echart.convertFromPixel({ xAxisIndex: 0 }, x) : null;
    }

    show([startValue, endValue]: Span) {
        this.echart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, startValue, endValue });
    }

    private svg(): string {
        const drawing = this.canvas.querySelector("svg")!;
        const shown = this.all.filter(({ name }) => !this.hidden.has(name));
        const legend = shown.map((trace) => ({ name: trace.name, fill: colour(trace.colour), opacity: trace.faint ? 0.45 : 1 }));
        return withTitle(drawing, [drawing.clientWidth || 800, drawing.clientHeight || 300], this.figure.title, legend);
    }
}
