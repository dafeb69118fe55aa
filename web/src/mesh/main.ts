// The page of a coordinator: all sites, one pair, one site. It asks `/api/v1/` and draws; what it shows is in its address.

import { ask, LoggedOut, type Alarm, type Losses, type Mesh, type Next, type OneTest, type Pair, type PairOverTime, type Pairs, type Site } from "./api";
import { histogram } from "./histogram";
import { Matrix, shade } from "./matrix";
import { OverTime } from "./over_time";
import { count, element, link, make, moment, percent, rate, since, table } from "./words";

/** What is shown is asked for again after this, in milliseconds. */
const LIVE = 10_000;
const SPANS: [number, string][] = [[1, "1 day"], [7, "7 days"], [30, "30 days"], [100, "100 days"], [365, "1 year"]];
const DAY = 86_400_000;
/** Tests in a list at most. */
const LISTED = 50;

/** What is shown: `#/pair/a/b?days=7&until=…`. */
interface Shown { view: string[]; days: number; until: string | null; metric: string }

function shown(): Shown {
    const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const asked = new URLSearchParams(query);
    const days = Number(asked.get("days"));
    const until = asked.get("until");
    return {
        view: path.split("/").filter(Boolean).map(decodeURIComponent),
        days: SPANS.some(([span]) => span === days) ? days : 1,
        until: until !== null && !Number.isNaN(Date.parse(until)) ? until : null,
        metric: asked.get("metric") ?? "loss",
    };
}

function address({ view, days, until, metric }: Shown): string {
    const query = new URLSearchParams({ days: String(days) });
    if (until) query.set("until", until);
    if (metric !== "loss") query.set("metric", metric);
    return `#/${view.map(encodeURIComponent).join("/")}?${query}`;
}

const to = (view: string[]) => address({ ...shown(), view });

function span({ days, until, metric }: Shown, most = Infinity): string {
    const query = new URLSearchParams({ days: String(Math.min(days, most)), metric });
    if (until) query.set("until", until);
    return query.toString();
}

/** What all views have: head, time, alarms. */
class Page {
    private readonly title = make("h1");
    private readonly state = element("p", "quiet state", "");
    private readonly bar = make("div", "bar");
    private readonly alarms = make("section", "alarms");
    private readonly view = make("div", "view");
    private readonly spans: HTMLSelectElement;
    private readonly metrics: HTMLSelectElement;
    private readonly until = make("input");
    private readonly now: HTMLButtonElement;
    private readonly matrix = new Matrix((sender, receiver) => { location.hash = to(["pair", sender, receiver]); });
    private readonly chart = new OverTime();
    private timer = 0;
    private asked = 0;

    constructor(place: HTMLElement) {
        this.state.setAttribute("role", "status");
        this.spans = select(SPANS.map(([days, words]) => [String(days), words]));
        this.metrics = select([["loss", "Loss"]]);
        this.until.type = "datetime-local";
        const button = (words: string, act: () => void) => {
            const made = element("button", "", words);
            made.type = "button";
            made.addEventListener("click", act);
            return made;
        };
        const step = (way: number) => {
            const { days, until } = shown();
            const end = (until === null ? Date.now() : Date.parse(until)) + way * days * DAY;
            this.go({ until: end >= Date.now() ? null : new Date(end).toISOString() });
        };
        this.now = button("Now", () => this.go({ until: null }));
        this.spans.addEventListener("change", () => this.go({ days: Number(this.spans.value) }));
        this.metrics.addEventListener("change", () => this.go({ metric: this.metrics.value }));
        this.until.addEventListener("change", () => this.go({ until: this.until.value ? new Date(`${this.until.value}Z`).toISOString() : null }));
        this.bar.append(
            labelled("Show", this.metrics), labelled("of", this.spans), labelled("until (UTC)", this.until),
            element("span", "steps", button("Earlier", () => step(-1)), button("Later", () => step(1)), this.now),
        );
        if (place.dataset.public === "false") {
            const form = element("form", "leave", element("button", "", "Log out"));
            form.method = "post";
            form.action = "/logout";
            this.bar.append(form);
        }
        place.append(element("header", "", this.title, this.state), this.bar, this.alarms, this.view);
        addEventListener("hashchange", () => { scrollTo(0, 0); void this.refresh(); });
        document.addEventListener("visibilitychange", () => { if (!document.hidden) void this.refresh(); });
        void this.refresh();
    }

    private go(change: Partial<Shown>) {
        location.hash = address({ ...shown(), ...change });
    }

    /** Asks for all that is shown, and again after a while. */
    private async refresh() {
        clearTimeout(this.timer);
        const number = ++this.asked;
        const what = shown();
        this.spans.value = String(what.days);
        this.until.value = what.until ? new Date(what.until).toISOString().slice(0, 16) : "";
        this.now.disabled = what.until === null;
        try {
            const [mesh, sites, alarms] = await Promise.all([
                ask<Mesh>("mesh"), ask<{ sites: Site[] }>("sites"), ask<{ judged: string | null; alarms: Alarm[] }>("alarms"),
            ]);
            const draw = await this.drawing(what, mesh, sites.sites);
            // Something else was chosen in the meantime.
            if (number !== this.asked) return;
            this.head(mesh, sites.sites);
            this.showAlarms(alarms.judged, alarms.alarms);
            draw();
            this.state.classList.remove("failed");
        } catch (error) {
            if (number !== this.asked) return;
            if (error instanceof LoggedOut) { location.reload(); return; }
            this.state.classList.add("failed");
            this.state.textContent = `The coordinator does not answer (${error instanceof Error ? error.message : error}). What is below is what it said last.`;
        }
        // Who does not look needs nothing new.
        if (!document.hidden) this.timer = setTimeout(() => void this.refresh(), LIVE);
    }

    private head(mesh: Mesh, sites: Site[]) {
        this.title.replaceChildren(link(to([]), mesh.name));
        document.title = `${mesh.name}: longhaul mesh`;
        if (this.metrics.options.length !== mesh.metrics.length) {
            this.metrics.replaceChildren(...mesh.metrics.map(({ name, title }) => new Option(title, name)));
        }
        this.metrics.value = shown().metric;
        const joined = sites.filter((site) => site.joined).length;
        this.state.textContent = `${sites.length} sites, ${joined} joined. longhaul ${mesh.longhaul}. As of ${moment(mesh.now)} UTC.`;
    }

    private showAlarms(judged: string | null, alarms: Alarm[]) {
        const lines = alarms.map((alarm) => {
            const line = element("p", "alert", alarm.text, " ");
            const [suspect] = alarm.suspects;
            if (suspect?.kind === "path") line.append(link(to(["pair", ...suspect.sites]), "Look at the pair"));
            else if (suspect && suspect.sites.length === 1) line.append(link(to(["site", suspect.sites[0]!]), "Look at the site"));
            return line;
        });
        const none = judged === null ? element("p", "quiet", "Alarms have not been judged yet.") : element("p", "good", "Nobody loses more than usual.");
        replace(this.alarms, element("h2", "unseen", "Alarms"), ...(lines.length > 0 ? lines : [none]));
    }

    /** Asks for what the view needs; then draws it. */
    private async drawing(what: Shown, mesh: Mesh, sites: Site[]): Promise<() => void> {
        const [kind, one = "", other = ""] = what.view;
        if (kind === "pair") return await this.pair(what, one, other);
        if (kind === "site") return await this.site(what, sites, one);
        const days = Math.max(what.days, 1);
        const [pairs, losses, { next }] = await Promise.all([
            ask<Pairs>(`pairs?${span(what)}`), ask<Losses>(`losses?${span({ ...what, days: Math.max(days, 100) })}`), ask<{ next: Next[] }>("schedule?next=12"),
        ]);
        return () => {
            this.matrix.show(sites, pairs);
            const nextTests = table(["Due", "Test", "From", "To"], next.map(({ at, test, sender, receiver }) => [`${moment(at)}:${at.slice(17, 19)}`, test, sender, receiver]), "Next tests", "facts");
            const about = `Rows send, columns receive. From ${moment(pairs.span.from)} to ${moment(pairs.span.until)} UTC. Arrow keys move, Enter opens a pair.`;
            replace(this.view,
                element("h2", "", "All pairs"), element("p", "quiet", about), this.matrix.place,
                element("h2", "", "How the loss is spread"), histogram(losses),
                element("h2", "", "Next tests"), nextTests,
                element("h2", "", "Sites"), siteList(sites, pairs.pairs, Date.parse(mesh.now)));
        };
    }

    private async pair(what: Shown, one: string, other: string): Promise<() => void> {
        const path = ([from, to]: [string, string]) => `pairs/${encodeURIComponent(from)}/${encodeURIComponent(to)}`;
        const directions: [string, string][] = [[one, other], [other, one]];
        const days = { ...what, days: Math.max(what.days, 1) };
        const lines = await Promise.all(directions.map((pair) => ask<PairOverTime>(`${path(pair)}?${span(days)}`)));
        const tests = await Promise.all(directions.map((pair) => ask<{ tests: OneTest[] }>(`${path(pair)}/tests?${span(days, 2)}`)));
        return () => {
            const sums = lines.map(({ sender, receiver, points }) => {
                const sum = (of: "tests" | "sent_packets" | "lost_packets") => points.reduce((sum, point) => sum + point[of], 0);
                const [lost, sent] = [sum("lost_packets"), sum("sent_packets")];
                return [`${sender} to ${receiver}`, count(sum("tests")), count(sent), count(lost), percent(sent === 0 ? null : lost / sent)];
            });
            replace(this.view,
                element("h2", "", link(to(["site", one]), one), " and ", link(to(["site", other]), other)),
                element("p", "", link(to([]), "All pairs")),
                this.chart.place,
                table(["Direction", "Tests", "Packets", "Lost", "Loss"], sums, "Both directions"),
                element("h2", "", "Tests that lost packets"), lossyTests(directions, tests.map(({ tests }) => tests)));
            this.chart.show(lines);
        };
    }

    private async site(what: Shown, sites: Site[], name: string): Promise<() => void> {
        const site = sites.find((site) => site.name === name);
        if (!site) return () => replace(this.view, element("p", "alert", `The mesh has no site ${name}. `, link(to([]), "All pairs")));
        const { pairs, span: when } = await ask<Pairs>(`pairs?${span(what)}`);
        return () => {
            const facts: [string, string][] = [
                ["State", site.joined ? "joined" : "has not joined"], ["Link", rate(site.rate_bps)],
                ["Last test", site.last_test === null ? "none" : `${moment(site.last_test)} UTC`], ["Tags", site.tags.join(", ") || "none"],
                ["Connections", site.nat ? "nobody can connect to it" : "others can connect to it"],
            ];
            const list = make("dl", "tiles");
            list.append(...facts.map(([name, value]) => element("div", "", element("dt", "", name), element("dd", "", value))));
            const side = (of: "sender" | "receiver", partner: "sender" | "receiver", head: string) => {
                const own = pairs.filter((pair) => pair[of] === name).sort((one, other) => (other.loss ?? -1) - (one.loss ?? -1));
                const pairOf = (pair: Pair) => link(to(["pair", pair.sender, pair.receiver]), pair[partner]);
                const rows = own.map((pair) => [pairOf(pair), count(pair.tests), count(pair.sent_packets), count(pair.lost_packets), mark(pair.loss)]);
                return [
                    element("h2", "", head),
                    own.length === 0 ? element("p", "quiet", "No tests in this time.") : table(["Partner", "Tests", "Packets", "Lost", "Loss"], rows, head),
                ];
            };
            replace(this.view,
                element("h2", "", name), element("p", "", link(to([]), "All pairs")), list,
                element("p", "quiet", `From ${moment(when.from)} to ${moment(when.until)} UTC, the greatest loss first.`),
                ...side("receiver", "sender", `What ${name} receives`), ...side("sender", "receiver", `What ${name} sends`));
        };
    }
}

/** Puts elements in place of others, unless they are the same: what somebody reads or has opened stays. */
function replace(place: HTMLElement, ...inside: Node[]) {
    const old = [...place.childNodes];
    const same = old.length === inside.length && inside.every((node, n) => node === old[n] || node.isEqualNode(old[n]!));
    if (same) return;
    const opened = [...place.querySelectorAll("details")].map(({ open }) => open);
    const focused = document.activeElement;
    const kept = inside.map((node, n) => old[n] !== undefined && node !== old[n] && node.isEqualNode(old[n]!) ? old[n]! : node);
    place.replaceChildren(...kept);
    place.querySelectorAll("details").forEach((details, n) => { details.open = opened[n] ?? false; });
    // An element that was moved has lost it.
    if (focused instanceof HTMLElement && place.contains(focused)) focused.focus({ preventScroll: true });
}

function select(options: [string, string][]): HTMLSelectElement {
    const made = make("select");
    made.append(...options.map(([value, words]) => new Option(words, value)));
    return made;
}

function labelled(words: string, control: HTMLElement): HTMLElement {
    return element("label", "", `${words} `, control);
}

/** A share of loss with its colour. */
function mark(loss: number | null): HTMLElement {
    return element("span", "", element("i", `swatch ${shade(loss)}`), percent(loss));
}

function siteList(sites: Site[], pairs: Pair[], now: number): HTMLElement {
    const sums = (of: "sender" | "receiver", name: string) => {
        const own = pairs.filter((pair) => pair[of] === name);
        const [lost, sent] = own.reduce(([lost, sent], pair) => [lost + pair.lost_packets, sent + pair.sent_packets], [0, 0]);
        return mark(sent === 0 ? null : lost / sent);
    };
    const rows = sites.map((site) => [
        link(to(["site", site.name]), site.name), site.joined ? "joined" : "has not joined",
        site.last_test === null ? "none" : since(site.last_test, now), sums("sender", site.name), sums("receiver", site.name),
    ]);
    return table(["Site", "State", "Last test", "Loss of what it sends", "Loss of what it receives"], rows, "Sites");
}

function lossyTests(directions: [string, string][], tests: OneTest[][]): HTMLElement {
    const lossy = tests.flatMap((tests, n) => tests.filter(({ lost_packets }) => lost_packets > 0).map((test) => ({ ...test, names: directions[n]! })));
    lossy.sort((one, other) => other.at.localeCompare(one.at));
    if (lossy.length === 0) return element("p", "quiet", "No test of the last 2 days of this time lost a packet.");
    const place = (packets: number | null) => packets === null ? "not seen" : count(packets);
    const rows = lossy.slice(0, LISTED).map((test) => [
        `${moment(test.at)}:${test.at.slice(17, 19)}`, `${test.names[0]} to ${test.names[1]}`, test.test, count(test.sent_packets), count(test.lost_packets),
        percent(test.lost_packets / test.sent_packets), place(test.lost_at_sender_packets), place(test.lost_at_receiver_packets), rate(test.received_rate_bps),
    ]);
    const made = table(["Began (UTC)", "Direction", "Test", "Packets", "Lost", "Loss", "At the sending host", "At the receiving host", "Received"], rows, "Tests that lost packets");
    if (lossy.length > LISTED) made.append(element("p", "quiet", `The latest ${LISTED} of ${lossy.length}, within 2 days.`));
    return made;
}

new Page(document.getElementById("page")!);
