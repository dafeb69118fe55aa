// The page of a coordinator: all sites, one pair, one site, one test. It asks `/api/v1/` and draws; what it shows is in its address.

import { address, shown, span, SPANS, to, type Shown } from "./address";
import { alarmLines } from "./alarms";
import { ask, LoggedOut, type Alarms, type Losses, type Mesh, type Pairs, type Schedule, type Site } from "./api";
import { histogram } from "./histogram";
import { Matrix } from "./matrix";
import { metricOf, METRICS } from "./metrics";
import { nextTests } from "./next";
import { PairView } from "./pair";
import { drawSite, siteList } from "./site";
import { drawTest } from "./test";
import { element, link, make, moment } from "./words";

/** What is shown is asked for again after this, in milliseconds. */
const LIVE = 10_000;
const DAY = 86_400_000;

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
    private readonly pair = new PairView();
    private timer = 0;
    private asked = 0;

    constructor(place: HTMLElement) {
        this.state.setAttribute("role", "status");
        this.spans = select(SPANS.map(([days, words]) => [String(days), words]));
        this.metrics = select(METRICS.map(({ name, title }) => [name, title]));
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
        this.metrics.addEventListener("change", () => this.go({ metric: metricOf(this.metrics.value) }));
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
        this.metrics.value = what.metric.name;
        this.until.value = what.until ? new Date(what.until).toISOString().slice(0, 16) : "";
        this.now.disabled = what.until === null;
        try {
            const [mesh, sites, alarms] = await Promise.all([ask<Mesh>("mesh"), ask<{ sites: Site[] }>("sites"), ask<Alarms>("alarms")]);
            const draw = await this.drawing(what, mesh, sites.sites);
            // Something else was chosen in the meantime.
            if (number !== this.asked) return;
            this.head(mesh, sites.sites);
            replace(this.alarms, element("h2", "unseen", "Alarms"), ...alarmLines(alarms));
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
        const joined = sites.filter((site) => site.joined).length;
        this.state.textContent = `${sites.length} sites, ${joined} joined. longhaul ${mesh.longhaul}. As of ${moment(mesh.now)} UTC.`;
    }

    /** Asks for what the view needs; then draws it. */
    private async drawing(what: Shown, mesh: Mesh, sites: Site[]): Promise<() => void> {
        const [kind, one = "", other = ""] = what.view;
        const draw = kind === "pair" ? await this.pair.drawing(what, mesh, one, other)
            : kind === "site" ? await drawSite(what, sites, one)
            : kind === "test" ? await drawTest(one, other || undefined)
            : await this.all(what, mesh, sites);
        return () => {
            replace(this.view, ...draw());
            if (kind === "pair") this.pair.drawChart();
        };
    }

    /** All pairs. */
    private async all(what: Shown, mesh: Mesh, sites: Site[]): Promise<() => Node[]> {
        const { metric } = what;
        const isLoss = metric === METRICS[0];
        const [pairs, losses, schedule] = await Promise.all([
            ask<Pairs>(`pairs?${span(what)}`), isLoss ? ask<Losses>(`losses?${span({ ...what, days: Math.max(what.days, 100) })}`) : null,
            ask<Schedule>("schedule?next=12"),
        ]);
        return () => {
            this.matrix.show(sites, pairs);
            const direction = metric.both ? "A test has both directions." : "Rows send, columns receive.";
            const about = `${metric.unit} ${direction} From ${moment(pairs.span.from)} to ${moment(pairs.span.until)} UTC. Arrow keys move, Enter opens a pair.`;
            return [
                element("h2", "", "All pairs"), element("p", "quiet", about), ...noTests(mesh, what, pairs.pairs.length), this.matrix.place,
                ...losses ? [element("h2", "", "How the loss is spread"), histogram(losses)] : [],
                ...nextTests(schedule),
                element("h2", "", "Sites"), siteList(sites, pairs.pairs, metric, Date.parse(mesh.now)),
            ];
        };
    }
}

/** Why there is nothing to see. */
function noTests(mesh: Mesh, { metric }: Shown, pairs: number): HTMLElement[] {
    if (pairs > 0) return [];
    const isPlanned = mesh.tests.some(({ kind }) => kind === metric.kind);
    const why = isPlanned ? `No test of kind ${metric.kind} has a result in this time.` : `The mesh has no test of kind ${metric.kind}: add one to its file.`;
    return [element("p", "alert none", why)];
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

new Page(document.getElementById("page")!);
