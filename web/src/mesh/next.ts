// Tests that come next, of all kinds.

import type { Schedule } from "./api";
import { count, duration, element, second, table } from "./words";

export function nextTests({ next, without_pause, asked }: Schedule): Node[] {
    const rows = [
        ...asked.map(({ test, sender, receiver }) => ["when both are idle", test, "diagnose", sender, receiver]),
        ...next.map(({ at, test, kind, sender, receiver }) => [second(at), test, kind, sender, receiver]),
    ];
    const standing = without_pause.map(({ name, pairs, time_ns }) =>
        element("p", "quiet pause", `Without pause: ${name}, round trips of ${count(pairs)} pairs, a result of each every ${duration(time_ns)}.`));
    const none = rows.length === 0 && standing.length === 0 ? [element("p", "quiet", "No test is due.")] : [];
    return [
        element("h2", "", "Next tests"), ...rows.length > 0 ? [table(["Due (UTC)", "Test", "Kind", "From", "To"], rows, "Next tests", "facts")] : [], ...standing, ...none,
    ];
}
