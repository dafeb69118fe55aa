// One test of any kind: all that is kept of it.

import { to } from "./address";
import { ask, NotFound, type Diagnosis, type OneTest, type RoundTrips, type Tcp, type TestOfPair } from "./api";
import { limit, outages } from "./metrics";
import { count, duration, element, facts, link, make, percent, rate, second, table } from "./words";

const KINDS: Record<string, string> = { udp: "UDP test", rtt: "Round trips", tcp: "TCP test", diagnose: "Diagnosis" };

export async function drawTest(id: string, at: string | undefined): Promise<() => Node[]> {
    try {
        const { sender, receiver, result } = await ask<TestOfPair>(`tests/${encodeURIComponent(id)}${at ? `?at=${encodeURIComponent(at)}` : ""}`);
        return () => [
            element("h2", "", `${KINDS[result.kind] ?? result.kind}: ${sender} to ${receiver}`),
            element("p", "", link(to(["pair", sender, receiver]), `${sender} and ${receiver}`), " · ", link(to([]), "All pairs")),
            facts([["Began (UTC)", second(result.at)], ["Test", result.test], ...summary(result)]),
            ...details(result),
            ...files(result),
            element("p", "quiet id", "Id: ", element("code", "", result.id)),
        ];
    } catch (error) {
        if (!(error instanceof NotFound)) throw error;
        return () => [element("p", "alert", "The coordinator has no test with this id. ", link(to([]), "All pairs"))];
    }
}

const FILES: Record<string, string> = { losses: "Which packets were lost", samples: "The kernel's TCP_INFO of both ends over time" };

/** What the coordinator keeps beside the test, to be saved. */
function files({ id, at, files }: OneTest): Node[] {
    return (files ?? []).map(kind => {
        const made = link(`/api/v1/tests/${encodeURIComponent(id)}/files/${kind}?at=${encodeURIComponent(at)}`, FILES[kind] ?? kind);
        made.download = "";
        return element("p", "", made, " (Parquet)");
    });
}

const known = (bps: number | null) => bps === null ? "none" : rate(bps);

function summary(test: OneTest): [string, string][] {
    const { sent_packets, lost_packets, round_trips, tcp, diagnosis } = test;
    const lost = `${count(lost_packets)}, ${percent(sent_packets === 0 ? null : lost_packets / sent_packets)}`;
    if (round_trips) {
        return [
            ["Median", duration(round_trips.p50_ns)], ["Probes", count(sent_packets)], ["Lost", lost],
            ["Outages", outages(round_trips.outages, round_trips.longest_outage_ns)], ["Over", duration(round_trips.duration_ns)],
        ];
    }
    if (tcp) return [["Goodput", rate(tcp.goodput_bps)], ["Paced to", rate(tcp.paced_bps)], ["Limited by", limit(tcp.limited_by, tcp.limited_share)]];
    if (diagnosis) return [["TCP carried", known(diagnosis.goodput_bps)], ["Expected on the wire", known(diagnosis.target_bps)]];
    return [["Packets", count(sent_packets)], ["Lost", lost], ["Received", rate(test.received_rate_bps)]];
}

function details(test: OneTest): Node[] {
    if (test.round_trips) return ofRoundTrips(test.round_trips);
    if (test.tcp) return ofTcp(test.tcp);
    if (test.diagnosis) return ofDiagnosis(test.diagnosis);
    return places(test);
}

/** Where UDP packets were lost. */
function places({ sent_packets, lost_packets, lost_at_sender_packets, lost_at_receiver_packets }: OneTest): Node[] {
    const head = element("h2", "", "Where packets were lost");
    if (lost_packets === 0) return [head, element("p", "good", "Nowhere: each packet arrived.")];
    if (lost_at_sender_packets === null || lost_at_receiver_packets === null) {
        return [head, element("p", "quiet", "The hosts could not see their own drops, so the location is unknown.")];
    }
    const elsewhere = Math.max(lost_packets - lost_at_sender_packets - lost_at_receiver_packets, 0);
    const row = (place: string, packets: number) => [place, count(packets), percent(packets / lost_packets), percent(sent_packets === 0 ? null : packets / sent_packets)];
    const rows = [row("at the sending host", lost_at_sender_packets), row("between the hosts", elsewhere), row("at the receiving host", lost_at_receiver_packets)];
    return [head, table(["Location", "Packets", "Of the lost", "Of all"], rows, "Where packets were lost")];
}

function ofRoundTrips({ min_ns, p50_ns, p90_ns, p99_ns, max_ns, gaps_ns }: RoundTrips): Node[] {
    const rows = ([["least", min_ns], ["50 % within", p50_ns], ["90 % within", p90_ns], ["99 % within", p99_ns], ["greatest", max_ns]] as [string, number | null][])
        .map(([name, ns]) => [name, duration(ns)]);
    const gaps = gaps_ns > 0 ? [element("p", "quiet", `For ${duration(gaps_ns)} the probes gave no information about the path, for example while a host was suspended. This is not loss.`)] : [];
    return [element("h2", "", "Round trips"), table(["Share", "Round trip"], rows, "Round trips"), ...gaps];
}

function ofTcp(tcp: Tcp): Node[] {
    const rows = [
        ["Payload bytes", count(tcp.bytes)], ["Over", duration(tcp.duration_ns)], ["Retransmitted packets", count(tcp.retransmits)],
        ["Retransmitted bytes", tcp.retransmitted_bytes === null ? "not counted" : count(tcp.retransmitted_bytes)],
        ["Least round trip", duration(tcp.min_rtt_ns)], ["Congestion control", tcp.congestion_control],
    ];
    return [element("h2", "", "The flow"), table(["Figure", "Value"], rows, "The flow")];
}

/** Causes with what to do, the lowest limit first. */
function ofDiagnosis({ causes, failed }: Diagnosis): Node[] {
    const head = element("h2", "", "What limits TCP");
    if (failed !== null) return [head, element("p", "alert", `No answer: ${failed}`)];
    if (causes.length === 0) return [head, element("p", "good", "Nothing limits it below what was expected.")];
    const list = make("ol", "causes");
    for (const { code, place, bound_bps, remedy } of causes) {
        const where = place ? `, ${place.replaceAll("_", " ")}` : "";
        const bound = bound_bps === null ? "" : `: ${rate(bound_bps)} at most`;
        list.append(element("li", "", element("strong", "", `${code.replaceAll("_", " ")}${where}${bound}`), element("p", "", remedy)));
    }
    return [head, list];
}
