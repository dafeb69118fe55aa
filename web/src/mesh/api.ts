// What the coordinator answers. Its other side is `crates/mesh/src/web/api/answers.rs`; times are RFC 3339, shares are from 0 to 1.

export interface Sums {
    tests: number;
    sent_packets: number;
    lost_packets: number;
    loss: number | null;
}
export interface Span { from: string; until: string; unit: "hour" | "day" }
export interface TestPlan { name: string; kind: string; pairs: number; every_ns: number | null; time_ns: number }
export interface Mesh {
    name: string;
    now: string;
    longhaul: string;
    tests: TestPlan[];
    metrics: { name: string; title: string; kind: string }[];
}
export interface Site { name: string; joined: boolean; rate_bps: number; tags: string[]; nat: boolean; last_test: string | null }
/** What tests of a pair found over a time: with the metric `rtt` round trips, with `goodput` what TCP carried. */
export interface Figures extends Sums {
    round_trip?: { median_ns: number | null; p99_ns: number | null; outages: number; longest_outage_ns: number; usual_ns?: number };
    goodput?: { median_bps: number | null; paced_bps: number | null };
}
export interface Pair extends Figures { sender: string; receiver: string }
export interface Pairs { span: Span; metric: string; pairs: Pair[] }
export interface Point extends Figures { begin: string }
export interface PairOverTime { sender: string; receiver: string; span: Span; points: Point[] }
export interface RoundTrips {
    duration_ns: number;
    min_ns: number | null;
    p50_ns: number | null;
    p90_ns: number | null;
    p99_ns: number | null;
    max_ns: number | null;
    outages: number;
    longest_outage_ns: number;
    gaps_ns: number;
}
export interface Tcp {
    duration_ns: number;
    bytes: number;
    goodput_bps: number;
    paced_bps: number;
    retransmits: number;
    retransmitted_bytes: number | null;
    min_rtt_ns: number | null;
    congestion_control: string;
    limited_by: string;
    limited_share: number;
}
export interface Diagnosis {
    target_bps: number | null;
    goodput_bps: number | null;
    causes: { code: string; place: string; bound_bps: number | null; remedy: string }[];
    failed: string | null;
}
export interface OneTest {
    id: string;
    test: string;
    kind: string;
    at: string;
    sent_packets: number;
    lost_packets: number;
    lost_at_sender_packets: number | null;
    lost_at_receiver_packets: number | null;
    received_rate_bps: number;
    round_trips?: RoundTrips;
    tcp?: Tcp;
    diagnosis?: Diagnosis;
    files?: string[];
}
export interface TestOfPair { sender: string; receiver: string; result: OneTest }
export interface Losses {
    span: Span;
    tests: number;
    without_loss: number;
    buckets: { from: number; below: number; tests: number }[];
}
export interface Alarm {
    id: string;
    state: "open" | "over";
    ended: string | null;
    suspects: { kind: string; sites: string[]; link: [string, string] | null; text: string }[];
    place: string;
    since: string | null;
    raised: string;
    loss: number;
    log10_odds: number;
    text: string;
    diagnosis: {
        progress: "due" | "asked" | "done" | "none";
        asked: string | null;
        sender: string | null;
        receiver: string | null;
        test: string | null;
        at: string | null;
        why: string | null;
    };
}
export interface Alarms { judged: string | null; alarms: Alarm[]; over: Alarm[] }
export interface Schedule {
    next: { at: string; test: string; kind: string; sender: string; receiver: string }[];
    without_pause: TestPlan[];
    asked: { asked: string; test: string; sender: string; receiver: string }[];
}

/** The coordinator wants to know who asks. */
export class LoggedOut extends Error {}

/** There is nothing of that name. */
export class NotFound extends Error {}

/** Asks `/api/v1/` and waits for the answer, 20 seconds at most. */
export async function ask<T>(question: string): Promise<T> {
    const answer = await fetch(`/api/v1/${question}`, { signal: AbortSignal.timeout(20_000), cache: "no-store" });
    if (answer.status === 401) throw new LoggedOut();
    if (!answer.ok) {
        const why = await answer.json().then(({ error }) => error as string, () => answer.statusText);
        throw answer.status === 404 ? new NotFound(why) : new Error(why);
    }
    return await answer.json() as T;
}
