// Alarms: those that are open, and those that ended in the last day.

import { to } from "./address";
import type { Alarm, Alarms } from "./api";
import { element, link } from "./words";

function line(alarm: Alarm, classes: string): HTMLElement {
    const made = element("p", classes, alarm.text, " ");
    const [suspect] = alarm.suspects;
    if (suspect?.kind === "path") made.append(link(to(["pair", ...suspect.sites]), "Look at the pair"));
    else if (suspect && suspect.sites.length === 1) made.append(link(to(["site", suspect.sites[0]!]), "Look at the site"));
    return made;
}

export function alarmLines({ judged, alarms, over }: Alarms): HTMLElement[] {
    const none = judged === null ? element("p", "quiet", "Alarms have not been judged yet.") : element("p", "good", "Nobody loses more than usual.");
    const open = alarms.length > 0 ? alarms.map((alarm) => line(alarm, "alert")) : [none];
    if (over.length === 0) return open;
    const ended = over.map((alarm) => line(alarm, "over"));
    return [...open, element("details", "", element("summary", "", `Alarms that ended in the last day: ${over.length}`), ...ended)];
}
