// Alarms: those that are open, and those that ended in the last day.

import { to } from "./address";
import type { Alarm, Alarms } from "./api";
import { element, link, moment } from "./words";

function line(alarm: Alarm, classes: string): HTMLElement {
    const made = element("p", classes, alarm.text, " ");
    const [suspect] = alarm.suspects;
    if (suspect?.kind === "path") made.append(link(to(["pair", ...suspect.sites]), "Look at the pair"));
    else if (suspect && suspect.sites.length === 1) made.append(link(to(["site", suspect.sites[0]!]), "Look at the site"));
    made.append(element("span", "diagnosis", ...ofDiagnosis(alarm.diagnosis)));
    return made;
}

/** Where the diagnosis is, or why there is none. */
function ofDiagnosis({ progress, asked, sender, receiver, test, at, why }: Alarm["diagnosis"]): (string | Node)[] {
    const look = test === null ? [] : [" ", link(to(["test", test, ...at === null ? [] : [at]]), "Look at the diagnosis")];
    switch (progress) {
        case "done": return look;
        case "asked": return [` A diagnosis from ${sender} to ${receiver} was asked for at ${asked === null ? "" : moment(asked)} UTC and has not come yet.`];
        case "due": return [" A site will be asked for a diagnosis."];
        case "none": return why === null ? look : [` No diagnosis: ${why}.`, ...look];
    }
}

export function alarmLines({ judged, alarms, over }: Alarms): HTMLElement[] {
    const none = judged === null ? element("p", "quiet", "Alarms have not been judged yet.") : element("p", "good", "Nobody loses more than usual.");
    const open = alarms.length > 0 ? alarms.map((alarm) => line(alarm, "alert")) : [none];
    if (over.length === 0) return open;
    const ended = over.map((alarm) => line(alarm, "over"));
    return [...open, element("details", "", element("summary", "", `Alarms that ended in the last day: ${over.length}`), ...ended)];
}
