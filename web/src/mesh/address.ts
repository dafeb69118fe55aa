// What is shown is in the page's address: `#/pair/a/b?days=7&until=…`.

import { METRICS, metricOf, type Metric } from "./metrics";

export const SPANS: [number, string][] = [[1, "1 day"], [7, "7 days"], [30, "30 days"], [100, "100 days"], [365, "1 year"]];

/** The view and the names in it; of what, and when. */
export interface Shown { view: string[]; days: number; until: string | null; metric: Metric }

/** A part of an address; one that is no text stays as it is. */
function decoded(part: string): string {
    try { return decodeURIComponent(part); } catch { return part; }
}

export function shown(): Shown {
    const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const asked = new URLSearchParams(query);
    const days = Number(asked.get("days"));
    const until = asked.get("until");
    return {
        view: path.split("/").filter(Boolean).map(decoded),
        days: SPANS.some(([span]) => span === days) ? days : 1,
        until: until !== null && !Number.isNaN(Date.parse(until)) ? until : null,
        metric: metricOf(asked.get("metric") ?? ""),
    };
}

export function address({ view, days, until, metric }: Shown): string {
    const query = new URLSearchParams({ days: String(days) });
    if (until) query.set("until", until);
    if (metric !== METRICS[0]) query.set("metric", metric.name);
    return `#/${view.map(encodeURIComponent).join("/")}?${query}`;
}

/** The address of another view of the same time. */
export const to = (view: string[]) => address({ ...shown(), view });

/** The same time and metric as a question, of `most` days. */
export function span({ days, until, metric }: Shown, most = Infinity, name = metric.name): string {
    const query = new URLSearchParams({ days: String(Math.min(days, most)), metric: name });
    if (until) query.set("until", until);
    return query.toString();
}
