// Sites: the list of all, and one with all its partners.

import { span, to, type Shown } from "./address";
import { ask, type Pair, type Pairs, type Site } from "./api";
import type { Metric } from "./metrics";
import { element, facts, link, moment, rate, since, table } from "./words";

export function siteList(sites: Site[], pairs: Pair[], metric: Metric, now: number): HTMLElement {
    const rows = sites.map((site) => [
        link(to(["site", site.name]), site.name), site.joined ? "joined" : "has not joined",
        site.last_test === null ? "none" : since(site.last_test, now), ...metric.sites.map(({ of }) => of(site.name, pairs)),
    ]);
    return table(["Site", "State", "Last test", ...metric.sites.map(({ head }) => head)], rows, "Sites");
}

/** Tests with all partners, in one table for each direction, or in one where a test has both. */
function partners(name: string, pairs: Pair[], metric: Metric): HTMLElement[] {
    const side = (own: Pair[], head: string) => {
        const partner = ({ sender, receiver }: Pair) => sender === name ? receiver : sender;
        const rows = [...own].sort((one, other) => metric.badness(other) - metric.badness(one))
            .map((pair) => [link(to(["pair", pair.sender, pair.receiver]), partner(pair)), ...metric.row(pair)]);
        return [
            element("h2", "", head),
            own.length === 0 ? element("p", "quiet", "No tests in this time.") : table(["Partner", ...metric.heads], rows, head),
        ];
    };
    const of = (end: "sender" | "receiver") => pairs.filter((pair) => pair[end] === name);
    if (metric.both) return side([...of("sender"), ...of("receiver")], `${metric.title} between ${name} and others`);
    return [...side(of("receiver"), `What ${name} receives`), ...side(of("sender"), `What ${name} sends`)];
}

export async function drawSite(what: Shown, sites: Site[], name: string): Promise<() => Node[]> {
    const site = sites.find((site) => site.name === name);
    if (!site) return () => [element("p", "alert", `The mesh has no site ${name}. `, link(to([]), "All pairs"))];
    const { pairs, span: when } = await ask<Pairs>(`pairs?${span(what)}`);
    return () => [
        element("h2", "", name), element("p", "", link(to([]), "All pairs")),
        facts([
            ["State", site.joined ? "joined" : "has not joined"], ["Link", rate(site.rate_bps)],
            ["Last test", site.last_test === null ? "none" : `${moment(site.last_test)} UTC`], ["Tags", site.tags.join(", ") || "none"],
            ["Connections", site.nat ? "nobody can connect to it" : "others can connect to it"],
        ]),
        element("p", "quiet", `${what.metric.title} from ${moment(when.from)} to ${moment(when.until)} UTC, the worst first.`),
        ...partners(name, pairs, what.metric),
    ];
}
