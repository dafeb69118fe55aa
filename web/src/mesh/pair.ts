// One pair: over time in both directions, its single tests, and diagnoses of its path.

import { span, to, type Shown } from "./address";
import { ask, NotFound, type Figures, type Mesh, type OneTest, type PairOverTime } from "./api";
import { METRICS, type Metric } from "./metrics";
import { OverTime } from "./over_time";
import { count, element, link, median, rate, second, table } from "./words";

/** Tests in a list at most. */
const LISTED = 20;
/** Days of single tests in a list. */
const DAYS_LISTED = 2;

/** A test and its direction. */
interface Listed extends OneTest { direction: string }
type Directions = [string, string][];

/** Figures of all points together: medians of the points' values, as those of a span are. */
function whole({ points }: PairOverTime): Figures {
    const sum = (of: (point: Figures) => number) => points.reduce((sum, point) => sum + of(point), 0);
    const [sent_packets, lost_packets] = [sum((point) => point.sent_packets), sum((point) => point.lost_packets)];
    const middle = (of: (point: Figures) => number | null | undefined) => median(points.flatMap((point) => of(point) ?? []));
    const figures: Figures = { tests: sum((point) => point.tests), sent_packets, lost_packets, loss: sent_packets === 0 ? null : lost_packets / sent_packets };
    if (points.some(({ round_trip }) => round_trip)) {
        figures.round_trip = {
            median_ns: middle(({ round_trip }) => round_trip?.median_ns), p99_ns: middle(({ round_trip }) => round_trip?.p99_ns),
            outages: sum(({ round_trip }) => round_trip?.outages ?? 0), longest_outage_ns: Math.max(...points.map(({ round_trip }) => round_trip?.longest_outage_ns ?? 0)),
        };
    }
    if (points.some(({ goodput }) => goodput)) {
        figures.goodput = { median_bps: middle(({ goodput }) => goodput?.median_bps), paced_bps: middle(({ goodput }) => goodput?.paced_bps) };
    }
    return figures;
}

export class PairView {
    private readonly chart = new OverTime();
    private lines: PairOverTime[] = [];
    private metric: Metric = METRICS[0]!;

    async drawing(what: Shown, mesh: Mesh, one: string, other: string): Promise<() => Node[]> {
        const path = ([from, to]: [string, string]) => `pairs/${encodeURIComponent(from)}/${encodeURIComponent(to)}`;
        const directions: Directions = [[one, other], [other, one]];
        const { metric } = what;
        const each = <T>(rest: string) => Promise.all(directions.map((pair) => ask<T>(`${path(pair)}${rest}`)));
        try {
            const [lines, tests, diagnoses] = await Promise.all([
                each<PairOverTime>(`?${span(what)}`), each<{ tests: OneTest[] }>(`/tests?${span(what, DAYS_LISTED)}`),
                each<{ tests: OneTest[] }>(`/tests?${span(what, Infinity, "diagnosis")}`),
            ]);
            return () => {
                [this.lines, this.metric] = [lines, metric];
                return [
                    element("h2", "", link(to(["site", one]), one), " and ", link(to(["site", other]), other)),
                    element("p", "", link(to([]), "All pairs")),
                    ...this.overTime(mesh),
                    ...single(metric, listed(directions, tests)), ...ofDiagnoses(listed(directions, diagnoses)),
                ];
            };
        } catch (error) {
            if (!(error instanceof NotFound)) throw error;
            return () => [element("p", "alert", `The mesh has no pair ${one} and ${other}. `, link(to([]), "All pairs"))];
        }
    }

    /** After what it returned stands in the page. */
    drawChart() {
        this.chart.show(this.lines, this.metric);
    }

    private overTime(mesh: Mesh): Node[] {
        const { metric, lines } = this;
        // Of two directions that one test has, the one that is tested.
        const tested = lines.filter(({ points }) => points.length > 0);
        if (tested.length === 0) {
            const isPlanned = mesh.tests.some(({ kind }) => kind === metric.kind);
            return [element("p", "alert none", isPlanned ? `No test of kind ${metric.kind} has a result in this time.` : `The mesh has no test of kind ${metric.kind}.`)];
        }
        const rows = (metric.both ? tested : lines).map((line) => [
            metric.both ? `${line.sender} and ${line.receiver}, probed by ${line.sender}` : `${line.sender} to ${line.receiver}`, ...metric.row(whole(line)),
        ]);
        return [this.chart.place, table(["Direction", ...metric.heads], rows, "Both directions")];
    }
}

function listed(directions: Directions, tests: { tests: OneTest[] }[]): Listed[] {
    const all = tests.flatMap(({ tests }, n) => tests.map((test) => ({ ...test, direction: directions[n]!.join(" to ") })));
    return all.sort((one, other) => other.at.localeCompare(one.at));
}

const when = ({ id, at }: OneTest) => link(to(["test", id, at]), second(at));

/** Single tests of the last days: of loss those that lost packets. */
function single(metric: Metric, tests: Listed[]): Node[] {
    const isLoss = metric === METRICS[0];
    const head = isLoss ? "Tests that lost packets" : "Single tests";
    const shown = isLoss ? tests.filter(({ lost_packets }) => lost_packets > 0) : tests;
    if (shown.length === 0) {
        const none = isLoss ? "No test of the last 2 days of this time lost a packet." : "No test in the last 2 days of this time.";
        return [element("h2", "", head), element("p", "quiet", none)];
    }
    const rows = shown.slice(0, LISTED).map((test) => [when(test), test.direction, test.test, ...metric.testRow(test)]);
    const made = table(["Began (UTC)", metric.both ? "Probed" : "Direction", "Test", ...metric.testHeads], rows, head);
    if (shown.length > LISTED) made.append(element("p", "quiet", `The latest ${LISTED} of ${count(shown.length)}, within 2 days.`));
    return [element("h2", "", head), made];
}

/** What limited TCP, first of all. */
function first({ diagnosis }: OneTest): string {
    if (!diagnosis || diagnosis.failed !== null) return "no answer";
    const [cause] = diagnosis.causes;
    return cause ? `${cause.code.replaceAll("_", " ")}${cause.place ? ` (${cause.place.replaceAll("_", " ")})` : ""}` : "nothing";
}

function ofDiagnoses(tests: Listed[]): Node[] {
    if (tests.length === 0) return [];
    const carried = ({ diagnosis }: OneTest) => diagnosis?.goodput_bps == null ? "none" : rate(diagnosis.goodput_bps);
    const rows = tests.slice(0, LISTED).map((test) => [when(test), test.direction, carried(test), first(test)]);
    return [element("h2", "", "Diagnoses"), table(["Began (UTC)", "Direction", "TCP carried", "The lowest limit"], rows, "Diagnoses")];
}
