// Figures of a pair over time, a line for each direction, or for each figure where a test of one direction stands for both.

import { LineChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import type { PairOverTime, Point } from "./api";
import { metricOf, type Metric, type Trace } from "./metrics";
import { element, make, median, moment } from "./words";

echarts.use([LineChart, GridComponent, TooltipComponent, SVGRenderer]);

const COLOURS = ["--blue", "--orange"];
/** An axis begins at its least value where that is above this share of the greatest: a round trip of 250.01 to 250.03 ms is no flat line. */
const NARROW = 0.6;

interface Line { name: string; points: [number, number | null][] }

/** Points with a gap where there was no test: where it is longer than the usual time between two, as some tests are seldom. */
function withGaps(points: Point[], { of }: Trace, unit: number): [number, number | null][] {
    const line: [number, number | null][] = [];
    const steps = points.slice(1).map(({ begin }, n) => Date.parse(begin) - Date.parse(points[n]!.begin));
    const usual = Math.max(unit, median(steps) ?? 0);
    let last = -Infinity;
    for (const point of points) {
        const at = Date.parse(point.begin);
        if (at - last > usual * 1.5 && line.length > 0) line.push([last + unit, null]);
        const value = of(point);
        // Tests whose probes had no answer leave a gap, too.
        if (value !== null) line.push([at, value]); else if (line.length > 0) line.push([at, null]);
        last = at;
    }
    return line;
}

/** The lines of both directions. */
function lines(pairs: PairOverTime[], { both, traces }: Metric, unit: number): Line[] {
    if (!both) return pairs.map(({ sender, receiver, points }) => ({ name: `${sender} to ${receiver}`, points: withGaps(points, traces[0]!, unit) }));
    const points = pairs.flatMap(({ points }) => points).sort((one, other) => one.begin.localeCompare(other.begin));
    return traces.map((trace) => ({ name: trace.name, points: withGaps(points, trace, unit) }));
}

export class OverTime {
    readonly place: HTMLElement;
    private readonly canvas = make("div", "live-canvas");
    private readonly names = make("ul", "legend");
    private chart: echarts.ECharts | null = null;
    private shown: PairOverTime[] = [];
    private metric: Metric = metricOf("loss");

    constructor() {
        this.place = element("figure", "", this.names, this.canvas);
        this.canvas.setAttribute("role", "img");
        new ResizeObserver(() => this.chart?.resize()).observe(this.canvas);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    }

    show(pairs: PairOverTime[], metric: Metric) {
        this.shown = pairs;
        this.metric = metric;
        this.draw();
    }

    private draw() {
        if (this.shown.length === 0 || !this.canvas.isConnected) return;
        this.chart ??= echarts.init(this.canvas, undefined, { renderer: "svg" });
        const style = getComputedStyle(document.documentElement);
        const [text, quiet, line, card] = ["--text", "--quiet", "--line", "--card"].map((name) => style.getPropertyValue(name).trim());
        const span = this.shown[0]!.span;
        const unit = span.unit === "hour" ? 3.6e6 : 8.64e7;
        const { title, axis, said } = this.metric;
        const drawn = lines(this.shown, this.metric, unit);
        this.names.replaceChildren(...drawn.map(({ name }, number) => element("li", "", element("i", `swatch line-${number}`), name)));
        const values = drawn.map(({ points }) => points.flatMap(([, value]) => value ?? []));
        const words = drawn.map(({ name }, number) => {
            const own = values[number]!;
            return own.length === 0 ? `${name}: no test` : `${name}: ${said(Math.min(...own))} to ${said(Math.max(...own))}`.replace(/^: /, "");
        });
        this.canvas.setAttribute("aria-label", `${title} by the ${span.unit} from ${moment(span.from)} to ${moment(span.until)} UTC: ${words.join(", ")}. The tables below have numbers.`);
        const [least, most] = values.flat().reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, 0] as [number, number]);
        const isNarrow = least > most * NARROW;
        this.chart.setOption({
            animation: false,
            useUTC: true,
            textStyle: { fontFamily: "system-ui, sans-serif" },
            grid: { left: 56, right: 16, top: 24, bottom: 28 },
            tooltip: {
                trigger: "axis", confine: true, backgroundColor: card, borderColor: line, textStyle: { color: text },
                formatter: (points: { value: [number, number | null]; seriesName: string }[]) => {
                    const box = make("div");
                    box.append(moment(new Date(points[0]!.value[0]).toISOString()));
                    for (const { value, seriesName } of points) box.append(make("br"), `${seriesName}: ${value[1] === null ? "no answer" : said(value[1])}`);
                    return box;
                },
            },
            xAxis: {
                type: "time", min: Date.parse(span.from), max: Date.parse(span.until), axisLine: { lineStyle: { color: quiet } },
                axisLabel: { color: text, hideOverlap: true }, splitLine: { show: false },
            },
            yAxis: {
                type: "value", name: axis, nameTextStyle: { color: quiet, align: "left", padding: [0, 0, 0, -48] }, scale: isNarrow, min: isNarrow ? undefined : 0, splitNumber: 4, splitLine: { lineStyle: { color: line } },
                axisLabel: { color: text }, minInterval: 1e-6,
            },
            series: drawn.map(({ name, points }, number) => ({
                type: "line", name, data: points, animation: false, connectNulls: false,
                symbol: points.length < 100 ? "circle" : "none", symbolSize: 5,
                lineStyle: { width: 1.6, color: style.getPropertyValue(COLOURS[number]!).trim(), type: number === 0 ? "solid" : [6, 3] },
                itemStyle: { color: style.getPropertyValue(COLOURS[number]!).trim() },
            })),
        }, { replaceMerge: ["series"] });
    }
}
