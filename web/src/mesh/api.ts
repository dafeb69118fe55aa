// What the coordinator answers. Its other side is `crates/mesh/src/web/api/answers.rs`; times are RFC 3339, shares are from 0 to 1.

export interface Sums {
    tests: number;
    sent_packets: number;
    lost_packets: number;
    loss: number | null;
}
export interface Span { from: string; until: string; unit: "hour" | "day" }
export interface Mesh {
    name: string;
    now: string;
    longhaul: string;
    tests: { name: string; kind: string; pairs: number; every_ns: number | null; time_ns: number }[];
    metrics: { name: string; title: string }[];
}
export interface Site { name: string; joined: boolean; rate_bps: number; tags: string[]; nat: boolean; last_test: string | null }
export interface Pair extends Sums { sender: string; receiver: string }
export interface Pairs { span: Span; metric: string; pairs: Pair[] }
export interface Point extends Sums { begin: string }
export interface PairOverTime { sender: string; receiver: string; span: Span; points: Point[] }
export interface OneTest {
    id: string;
    test: string;
    at: string;
    sent_packets: number;
    lost_packets: number;
    lost_at_sender_packets: number | null;
    lost_at_receiver_packets: number | null;
    received_rate_bps: number;
}
export interface Losses {
    span: Span;
    tests: number;
    without_loss: number;
    buckets: { from: number; below: number; tests: number }[];
}
export interface Alarm {
    id: string;
    suspects: { kind: string; sites: string[]; link: [string, string] | null; text: string }[];
    place: string;
    since: string | null;
    raised: string;
    loss: number;
    log10_odds: number;
    text: string;
}
export interface Next { at: string; test: string; sender: string; receiver: string }

/** The coordinator wants to know who asks. */
export class LoggedOut extends Error {}

/** Asks `/api/v1/` and waits for the answer, 20 seconds at most. */
export async function ask<T>(question: string): Promise<T> {
    const answer = await fetch(`/api/v1/${question}`, { signal: AbortSignal.timeout(20_000), cache: "no-store" });
    if (answer.status === 401) throw new LoggedOut();
    if (!answer.ok) {
        const why = await answer.json().then(({ error }) => error as string, () => answer.statusText);
        throw new Error(why);
    }
    return await answer.json() as T;
}
