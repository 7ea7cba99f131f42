// SPDX-License-Identifier: Apache-2.0
// Which fields of a status have no place on the page: those whose change changes no text that it draws.
// @ts-check

import { h } from "../vendor/preact.js";
import { Page } from "../view.js";
import { opened } from "../model.js";

const now = new Date("2026-11-20T12:00:00Z");

/** What the page leaves out, as the beginning of a path, and why. */
export const leftOut = {
    schemaVersion: "for programs",
    reason: "the sentence of the daemon: the page makes its own from reasons",
    "reasons[].hold": "the pod has its holds", "reasons[].held": "the pod has its outcome in the history",
    "reasons[].change": "the pod has its change", "reasons[].rule": "the image has its refusals",
    "reasons[].errorKind": "for programs", "reasons[].cause": "the host has its alert", "reasons[].httpStatus": "the host has its alert",
    "reasons[].since": "the host or the lock has it", "reasons[].until": "the hold has it", "reasons[].retryAt": "the host or the lock has it",
    updates: "each is the offer of its image", notAllowed: "each is a refusal of its image",
    "images[].errorKind": "decides whether the error stands at the image or at its host",
    "podManifests[].holds[].reason": "summary and details say it", "podManifests[].holds[].note": "the summary says it", "standingHolds[].reason": "the summary says it",
    "images[].refused[].byHand": "chooses the sentence of the rule failed", "images[].notAllowed[].byHand": "is of the rule failed, which no setting allows",
    "podManifests[].holds[].name": "the summary says it", "standingHolds[].name": "the summary says it",
    "podManifests[].errorKind": "is a sentence where it is known", "podManifests[].untouched[].reason": "text says it", "podManifests[].rolledBack.retries[].image": "finds the container",
    "sources[].cause": "is a sentence where it is known", "catalog.cause": "catalog.error says it",
    "failures[].kind": "for programs", "failures[].cause": "is a sentence where it is known",
    "history[].cause": "is a sentence where it is known", "failures[].image": "failures.container says it",
    "images[].holds": "of a pod manifest they stand at the pod",
    "images[].refused[].byHand": "chooses the words of the rule failed", "images[].notAllowed[].byHand": "chooses the words of the rule failed",
    "standingHolds[].by.via": "for audits: image-update-agent history", "history[].by.via": "for audits: image-update-agent history",
    "standingHolds[].by.uid": "where the user has no name", "history[].by.uid": "where the user has no name",
    releases: "for programs: each is a release of its image",
    activity: "checking and staging are the headline", "podManifests[].holds[].grain": "the remedy names it",
    "podManifests[].holds[].notAsked": "chooses the summary and the remedy", "podManifests[].noRollback": "a note of the image says it",
    "sources[].error": "sources.reason says it without the repository",
    "progress.done": "of a pull", "progress.total": "of a pull",
    ...Object.fromEntries(["ended", "edits", "podManifest", "number", "count", "since", "deadline", "healthyAt", "reason"].map(name => ["pulls[]." + name, "of a restart"])),
};

/** The text of what a component draws, with what a person sees of its attributes. */
export function textOf(node) {
    if (node === null || node === undefined || typeof node === "boolean")
        return "";
    if (typeof node !== "object")
        return String(node);
    if (Array.isArray(node))
        return node.map(textOf).join(" ");
    const { type, props } = node;
    if (typeof type === "function")
        return textOf(type(props));
    const seen = ["value", "placeholder", "aria-disabled", "data-icon", "aria-valuenow"].map(name => props[name] ?? "");
    return [type, ...seen, textOf(props.children)].join(" ");
}

const actions = { set() {}, act() {}, select() {}, ask() {}, close() {}, inside() {}, show() {}, dismiss() {}, jump() {} };

/** The page of a status, as main.js has it after the first reading. */
export const pageOf = (status, more) => ({
    status, read: true, up: true, noBus: false, error: "", heard: null, pulls: status.pulls ?? [], work: status.progress ?? null,
    allowed: null, limited: false, tab: "overview", dialog: null, plan: null, doctor: null, wholeHistory: true,
    search: "", onlyUpdates: false, open: new Set(), doing: [], result: null, said: { n: 0, text: "" }, now, ...actions, ...more,
});

// The same status in other situations: a field has its place in one of them.
const situations = status => [
    pageOf(status), pageOf(status, { up: false }),
    ...["current", "staged", "stale", "held", "unchecked", "applying"].map(state => pageOf({ ...status, state, reasons: [] })),
    ...["starting", "withdrawn", "down", "lock", "unlock", "catalog", "no-tag-list", "await"].map(kind => pageOf({ ...status, reasons: status.reasons.map(r => ({ ...r, kind })) })),
    ...["verifying", "locking", "changing"].map(phase => pageOf(status, { work: { ...status.progress, phase } })),
    pageOf(status, { work: { ...status.progress, healthyAt: undefined } }), pageOf(status, { work: { ...status.progress, phase: "asking", podManifest: "" } }),
    pageOf({ ...status, images: status.images.map(i => ({ ...i, change: "", down: i.down && { ...i.down, starting: false } })) }),
    pageOf({ ...status, images: status.images.map(i => ({ ...i, down: i.down && { ...i.down, starting: false, absent: false } })) }),
    pageOf({ ...status, lock: { ...status.lock, lease: "" } }),
    pageOf({ ...status, standingHolds: status.standingHolds.map(hold => ({ ...hold, until: null })) }),
    ...[true, false].map(retry => pageOf(status, { dialog: opened(status, { kind: "apply", retry, files: ["pod0.yaml", "pod1.yaml"] }) })),
];

const drawn = page => textOf(h(Page, page));

function* leaves(value, path = "") {
    if (value === null || typeof value !== "object")
        yield path;
    else
        for (const [key, below] of Object.entries(value))
            yield* leaves(below, Array.isArray(value) ? `${path}[${key}]` : path ? `${path}.${key}` : key);
}

const keysOf = path => path.replace(/\[(\d+)\]/g, ".$1").split(".");

// A status in which one field is another.
function changed(status, path) {
    const copy = structuredClone(status), keys = keysOf(path), last = keys.pop();
    const at = keys.reduce((value, key) => value[key], copy), was = at[last];
    if (typeof was === "boolean")
        at[last] = !was;
    else if (typeof was === "number")
        at[last] = 3 * was + 7;
    else if (/^\d{4}-\d\d-\d\dT/.test(was))
        at[last] = new Date(new Date(was).getTime() + 90 * 86400000).toISOString();
    else
        at[last] = was + "-other";
    return copy;
}

/** The fields without a place, as paths without indexes, and those of leftOut that have one or are none. */
export function withoutPlace(status) {
    const before = situations(status).map(drawn), all = new Map();
    for (const path of leaves(status)) {
        const field = path.replace(/\[\d+\]/g, "[]");
        all.set(field, all.get(field) || situations(changed(status, path)).some((page, n) => drawn(page) !== before[n]));
    }
    const isLeftOut = field => Object.keys(leftOut).some(name => field === name || field.startsWith(name + ".") || field.startsWith(name + "["));
    return {
        fields: all.size,
        missing: [...all].filter(([field, has]) => !has && !isLeftOut(field)).map(([field]) => field).sort(),
        stale: Object.keys(leftOut).filter(name => ![...all.keys()].some(field => field === name || field.startsWith(name + ".") || field.startsWith(name + "["))),
    };
}
