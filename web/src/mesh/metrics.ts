// What the matrix, the figures and the tables show: loss, round trips or goodput. Each has its own colours, words and columns.

import type { Figures, OneTest, Pair, Point } from "./api";
import { digits } from "../data";
import { count, duration, element, median, percent, rate } from "./words";

/** A column of the list of sites. */
export interface SiteColumn { head: string; of: (name: string, pairs: Pair[]) => string | Node }
/** A line of a figure over time. */
export interface Trace { name: string; of: (point: Point) => number | null }

export interface Metric {
    name: string;
    title: string;
    /** The kind of the tests that it comes from. */
    kind: string;
    /** Whether a test of one direction stands for both. */
    both: boolean;
    /** What the numbers in cells are, for the line above the matrix. */
    unit: string;
    /** The class of a cell: its colour. */
    shade: (of: Figures) => string;
    /** What fits into a cell. */
    short: (of: Figures) => string;
    words: (of: Figures) => string;
    legend: [string, string][];
    heads: string[];
    row: (of: Figures) => (string | Node)[];
    /** The greater, the worse. */
    badness: (of: Figures) => number;
    sites: SiteColumn[];
    traces: Trace[];
    axis: string;
    said: (value: number) => string;
    testHeads: string[];
    testRow: (test: OneTest) => (string | Node)[];
}

/** A pair that no test of this span has. */
export const NONE: Figures = { tests: 0, sent_packets: 0, lost_packets: 0, loss: null };

/** How many of the steps a value has reached. */
const step = (value: number, steps: number[]) => `shade-${steps.filter((from) => value >= from).length}`;

function mark(shade: string, text: string): HTMLElement {
    return element("span", "", element("i", `swatch ${shade}`), text);
}

const own = (of: "sender" | "receiver", name: string, pairs: Pair[]) => pairs.filter((pair) => pair[of] === name);

/** The loss of several pairs. Each counts with its packets, but with no more than the middle one has: what a site delivers of its own
 * pairs does not outweigh what the others show. */
function together(pairs: Pair[]): Figures {
    const tested = pairs.filter(({ sent_packets }) => sent_packets > 0);
    const packets = tested.map(({ sent_packets }) => sent_packets).sort((one, other) => one - other);
    const most = packets[Math.floor((packets.length - 1) / 2)];
    if (most === undefined) return NONE;
    const sum = (of: (pair: Pair) => number) => tested.reduce((sum, pair) => sum + of(pair) * Math.min(1, most / pair.sent_packets), 0);
    return { ...NONE, loss: sum(({ lost_packets }) => lost_packets) / sum(({ sent_packets }) => sent_packets) };
}

/** Above nothing: shares of loss that begin a colour. */
const LOSS_STEPS = [1e-9, 1e-4, 1e-3, 1e-2, 1e-1];
const lossShade = ({ loss }: Figures) => loss === null ? "untested" : step(loss, LOSS_STEPS);
const lossMark = (of: Figures) => mark(lossShade(of), percent(of.loss));

const LOSS: Metric = {
    name: "loss", title: "Loss", kind: "udp", both: false, unit: "Percent of the packets of UDP tests that were lost.",
    shade: lossShade,
    short: ({ loss }) => loss === null ? "" : loss > 0 && loss < 1e-4 ? "<0.01" : percent(loss).replace(" %", ""),
    words: ({ loss, lost_packets, sent_packets, tests }) => `${percent(loss)} lost, ${count(lost_packets)} of ${count(sent_packets)} packets, ${count(tests)} tests`,
    legend: [
        ["shade-0", "nothing lost"], ["shade-1", "below 0.01 %"], ["shade-2", "from 0.01 %"], ["shade-3", "from 0.1 %"], ["shade-4", "from 1 %"], ["shade-5", "10 % or more"],
    ],
    heads: ["Tests", "Packets", "Lost", "Loss"],
    row: (of) => [count(of.tests), count(of.sent_packets), count(of.lost_packets), lossMark(of)],
    badness: ({ loss }) => loss ?? -1,
    sites: [
        { head: "Loss of what it sends", of: (name, pairs) => lossMark(together(own("sender", name, pairs))) },
        { head: "Loss of what it receives", of: (name, pairs) => lossMark(together(own("receiver", name, pairs))) },
    ],
    traces: [{ name: "", of: ({ loss }) => loss === null ? null : loss * 100 }],
    axis: "loss, %", said: (value) => percent(value / 100),
    testHeads: ["Packets", "Lost", "Loss", "At the sending host", "At the receiving host", "Received"],
    testRow: (test) => {
        const place = (packets: number | null) => packets === null ? "not seen" : count(packets);
        return [
            count(test.sent_packets), count(test.lost_packets), percent(test.sent_packets === 0 ? null : test.lost_packets / test.sent_packets),
            place(test.lost_at_sender_packets), place(test.lost_at_receiver_packets), rate(test.received_rate_bps),
        ];
    },
};

/** Times the pair's usual round trip. */
const RTT_STEPS = [1.05, 1.2, 1.5, 2, 4];
const rttShade = ({ tests, round_trip }: Figures) => {
    if (tests === 0 || !round_trip) return "untested";
    const { median_ns, usual_ns } = round_trip;
    if (median_ns === null) return "shade-5";
    return usual_ns ? step(median_ns / usual_ns, RTT_STEPS) : "shade-0";
};
const milliseconds = (ns: number) => digits(ns / 1e6, 3);
const rttMark = (of: Figures) => {
    const words = duration(of.round_trip?.median_ns ?? null);
    // Where nobody says what is usual there is nothing to compare with.
    return of.round_trip?.usual_ns ? mark(rttShade(of), words) : words;
};
const outages = (number: number, longest_ns: number) => number === 0 ? "0" : `${count(number)}, the longest ${duration(longest_ns)}`;

const RTT: Metric = {
    name: "rtt", title: "Round trip", kind: "rtt", both: true, unit: "Milliseconds, the median. Colours compare with what is usual of the pair: the median of 30 days.",
    shade: rttShade,
    short: ({ tests, round_trip }) => tests === 0 || !round_trip ? "" : round_trip.median_ns === null ? "lost" : milliseconds(round_trip.median_ns),
    words: ({ tests, lost_packets, sent_packets, loss, round_trip }) => {
        if (!round_trip) return "no test";
        const { median_ns, p99_ns, usual_ns, outages: number, longest_outage_ns } = round_trip;
        const median = median_ns === null ? "no answer" : `median ${duration(median_ns)}, 99 % within ${duration(p99_ns)}`;
        const usual = usual_ns ? `, usual ${duration(usual_ns)}` : "";
        return `${median}${usual}, ${percent(loss)} lost, ${count(lost_packets)} of ${count(sent_packets)} probes, outages ${outages(number, longest_outage_ns)}, ${count(tests)} tests`;
    },
    legend: [
        ["shade-0", "as usual"], ["shade-1", "5 % longer"], ["shade-2", "20 %"], ["shade-3", "50 %"], ["shade-4", "twice"], ["shade-5", "four times, or no answer"],
    ],
    heads: ["Tests", "Median", "99 % within", "Probes", "Lost", "Loss", "Outages"],
    row: (of) => [
        count(of.tests), rttMark(of), duration(of.round_trip?.p99_ns ?? null), count(of.sent_packets), count(of.lost_packets), percent(of.loss),
        outages(of.round_trip?.outages ?? 0, of.round_trip?.longest_outage_ns ?? 0),
    ],
    badness: ({ round_trip }) => round_trip ? round_trip.median_ns === null ? Infinity : round_trip.median_ns / (round_trip.usual_ns ?? round_trip.median_ns) : -1,
    sites: [{
        head: "Median of its round trips",
        of: (name, pairs) => {
            const its = pairs.filter(({ sender, receiver }) => sender === name || receiver === name);
            return duration(median(its.flatMap(({ round_trip }) => round_trip?.median_ns ?? [])));
        },
    }],
    traces: [
        { name: "median", of: ({ round_trip }) => round_trip?.median_ns == null ? null : round_trip.median_ns / 1e6 },
        { name: "99 % within", of: ({ round_trip }) => round_trip?.p99_ns == null ? null : round_trip.p99_ns / 1e6 },
    ],
    axis: "round trip, ms", said: (value) => duration(value * 1e6),
    testHeads: ["Median", "99 % within", "Greatest", "Probes", "Lost", "Outages"],
    testRow: ({ round_trips, sent_packets, lost_packets }) => [
        duration(round_trips?.p50_ns ?? null), duration(round_trips?.p99_ns ?? null), duration(round_trips?.max_ns ?? null), count(sent_packets), count(lost_packets),
        outages(round_trips?.outages ?? 0, round_trips?.longest_outage_ns ?? 0),
    ],
};

/** Shares that are missing of the rate that flows were paced to. */
const GOODPUT_STEPS = [0.1, 0.25, 0.5, 0.75, 0.9];
const missing = ({ goodput }: Figures) => goodput?.median_bps == null || !goodput.paced_bps ? null : 1 - goodput.median_bps / goodput.paced_bps;
const goodputShade = (of: Figures) => {
    const share = missing(of);
    return share === null ? "untested" : step(share, GOODPUT_STEPS);
};
const said = (bps: number | null | undefined) => bps == null ? "none" : rate(bps);
/** A rate without its unit: `46.4M`. */
const shortRate = (bps: number) => rate(Number(bps.toPrecision(3))).replace(" ", "").replace("bit/s", "");
const goodputMark = (of: Figures) => mark(goodputShade(of), said(of.goodput?.median_bps));
const goodputOf = (of: "sender" | "receiver") => (name: string, pairs: Pair[]) =>
    said(median(own(of, name, pairs).flatMap(({ goodput }) => goodput?.median_bps ?? [])));

const GOODPUT: Metric = {
    name: "goodput", title: "TCP goodput", kind: "tcp", both: false, unit: "Payload bits a second, the median. Colours compare with the rate that tests are paced to.",
    shade: goodputShade,
    short: ({ goodput }) => goodput?.median_bps == null ? "" : shortRate(goodput.median_bps),
    words: ({ tests, goodput }) => `median ${said(goodput?.median_bps)}, paced to ${said(goodput?.paced_bps)}, ${count(tests)} tests`,
    legend: [
        ["shade-0", "90 % of the paced rate, or more"], ["shade-1", "75 %"], ["shade-2", "50 %"], ["shade-3", "25 %"], ["shade-4", "10 %"], ["shade-5", "less"],
    ],
    heads: ["Tests", "Goodput, median", "Paced to"],
    row: (of) => [count(of.tests), goodputMark(of), said(of.goodput?.paced_bps)],
    badness: (of) => missing(of) ?? -1,
    sites: [
        { head: "Goodput of what it sends", of: goodputOf("sender") },
        { head: "Goodput of what it receives", of: goodputOf("receiver") },
    ],
    traces: [{ name: "", of: ({ goodput }) => goodput?.median_bps == null ? null : goodput.median_bps / 1e6 }],
    axis: "goodput, Mbit/s", said: (value) => rate(value * 1e6),
    testHeads: ["Goodput", "Paced to", "Retransmitted packets", "Limited by"],
    testRow: ({ tcp }) => [said(tcp?.goodput_bps), said(tcp?.paced_bps), count(tcp?.retransmits ?? 0), limit(tcp?.limited_by ?? "", tcp?.limited_share ?? 0)],
};

/** What limited a flow, and for what share of its time. */
export function limit(by: string, share: number): string {
    return by === "" ? "unknown" : `${by.replaceAll("_", " ")}, ${percent(share)} of the time`;
}

export { outages };

export const METRICS: Metric[] = [LOSS, RTT, GOODPUT];

export function metricOf(name: string): Metric {
    return METRICS.find((metric) => metric.name === name) ?? LOSS;
}
