// Loss of a pair over time, a line for each direction.

import { LineChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import type { PairOverTime, Point } from "./api";
import { element, make, moment, percent } from "./words";

echarts.use([LineChart, GridComponent, TooltipComponent, SVGRenderer]);

const COLOURS = ["--blue", "--orange"];

/** Points with a gap where there was no test. */
function withGaps(points: Point[], unit: number): [number, number | null][] {
    const line: [number, number | null][] = [];
    let last = -Infinity;
    for (const { begin, loss } of points) {
        const at = Date.parse(begin);
        if (at - last > unit * 1.5 && line.length > 0) line.push([last + unit, null]);
        if (loss !== null) line.push([at, loss * 100]);
        last = at;
    }
    return line;
}

export class OverTime {
    readonly place: HTMLElement;
    private readonly canvas = make("div", "live-canvas");
    private readonly names = make("ul", "legend");
    private chart: echarts.ECharts | null = null;
    private shown: PairOverTime[] = [];

    constructor() {
        this.place = element("figure", "", this.names, this.canvas);
        this.canvas.setAttribute("role", "img");
        new ResizeObserver(() => this.chart?.resize()).observe(this.canvas);
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    }

    show(pairs: PairOverTime[]) {
        this.shown = pairs;
        this.draw();
    }

    private draw() {
        if (this.shown.length === 0 || !this.canvas.isConnected) return;
        this.chart ??= echarts.init(this.canvas, undefined, { renderer: "svg" });
        const style = getComputedStyle(document.documentElement);
        const [text, quiet, line, card] = ["--text", "--quiet", "--line", "--card"].map((name) => style.getPropertyValue(name).trim());
        const span = this.shown[0]!.span;
        const unit = span.unit === "hour" ? 3.6e6 : 8.64e7;
        const name = ({ sender, receiver }: PairOverTime) => `${sender} to ${receiver}`;
        this.names.replaceChildren(...this.shown.map((pair, number) => element("li", "", element("i", `swatch line-${number}`), name(pair))));
        const sums = this.shown.map((pair) => {
            const [lost, sent] = pair.points.reduce(([lost, sent], point) => [lost + point.lost_packets, sent + point.sent_packets], [0, 0]);
            return `${name(pair)} ${percent(sent === 0 ? null : lost / sent)}`;
        });
        this.canvas.setAttribute("aria-label", `Loss by the ${span.unit} from ${moment(span.from)} to ${moment(span.until)} UTC: ${sums.join(", ")}. The tables below have numbers.`);
        this.chart.setOption({
            animation: false,
            useUTC: true,
            textStyle: { fontFamily: "system-ui, sans-serif" },
            grid: { left: 56, right: 16, top: 24, bottom: 28 },
            tooltip: {
                trigger: "axis", confine: true, backgroundColor: card, borderColor: line, textStyle: { color: text },
                formatter: (points: { value: [number, number]; seriesName: string }[]) => {
                    const box = make("div");
                    box.append(moment(new Date(points[0]!.value[0]).toISOString()));
                    for (const { value, seriesName } of points) box.append(make("br"), `${seriesName}: ${percent(value[1] / 100)}`);
                    return box;
                },
            },
            xAxis: {
                type: "time", min: Date.parse(span.from), max: Date.parse(span.until), axisLine: { lineStyle: { color: quiet } },
                axisLabel: { color: text, hideOverlap: true }, splitLine: { show: false },
            },
            yAxis: {
                type: "value", name: "loss, %", nameTextStyle: { color: quiet }, min: 0, splitNumber: 4, splitLine: { lineStyle: { color: line } },
                axisLabel: { color: text }, minInterval: 1e-6,
            },
            series: this.shown.map((pair, number) => ({
                type: "line", name: name(pair), data: withGaps(pair.points, unit), animation: false, connectNulls: false,
                symbol: pair.points.length < 100 ? "circle" : "none", symbolSize: 5,
                lineStyle: { width: 1.6, color: style.getPropertyValue(COLOURS[number]!).trim(), type: number === 0 ? "solid" : [6, 3] },
                itemStyle: { color: style.getPropertyValue(COLOURS[number]!).trim() },
            })),
        }, { replaceMerge: ["series"] });
    }
}
