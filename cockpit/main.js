// SPDX-License-Identifier: Apache-2.0
// The state of the page, and what changes it.
// @ts-check

import "./theme.js";
import { h, render } from "./vendor/preact.js";
import { Daemon, verb } from "./daemon.js";
import { Boundary } from "./ui.js";
import { Page } from "./view.js";
import { load } from "./details.js";
import { language } from "./i18n.js";
import * as model from "./model.js";

const cockpit = window.cockpit;
const shownAge = 15000; // ms between two drawings, for "3 minutes ago"; nothing is asked for them
const shownWork = 1000; // ms between them while a health check counts down
const resultStays = 20000; // ms that a success is shown

let page = {
    status: null, heard: null, read: false, up: false, noBus: false, error: "", // what the daemon said
    pulls: [], work: null, // what it does now
    allowed: null, limited: false, // what the caller may do
    tab: "overview", dialog: null, plan: null, doctor: null, wholeHistory: false,
    search: "", onlyUpdates: false, open: new Set(), // of the pods
    doing: [], result: null, said: { n: 0, text: "" }, // what the person does, and what came of it
};
let daemon, lastId = 0, invoker = null, home = null, timer = 0;

function set(change) {
    const before = page;
    page = { ...page, ...change };
    if (page.status !== before.status && page.tab === "details" && before.status)
        load(set);
    draw();
}

/**
 * Does what a person has asked for. A dialog that asked stays until the answer, and longer where it failed: with what
 * was typed. The result stands beside files, the pod manifests that it is about; none: it is about the node.
 */
async function act({ what, files = [], done }, run) {
    const id = ++lastId, asked = page.dialog?.id;
    set({ doing: [...page.doing, { id, what, files }], result: null, dialog: page.dialog && { ...page.dialog, doing: id, problem: null } });
    let result;
    try {
        result = model.outcome(what, await run(daemon), done);
    } catch (error) {
        result = model.problem(error, what);
    }
    result = { ...result, files, id };
    const stays = page.dialog?.doing === id && page.dialog.id === asked, failed = ["danger", "warning"].includes(result.kind);
    set({
        doing: page.doing.filter(one => one.id !== id), said: { n: id, text: model.sentence(result) },
        ...(stays && failed ? { dialog: { ...page.dialog, doing: 0, problem: result } } : { result }),
    });
    if (stays && !failed)
        close();
    if (result.kind === "ok")
        setTimeout(() => page.result?.id === id && set({ result: null }), resultStays);
    return !failed;
}

function ask(dialog) {
    invoker = page.dialog ? invoker : { element: document.activeElement, pod: document.activeElement?.closest("[data-pod]")?.getAttribute("data-pod") };
    set({ dialog: { ...model.opened(page.status, dialog), id: ++lastId } });
    if (dialog.kind === "registry")
        preview(page.dialog);
}

// What a dialog changes in hosts.toml, from the program that would write it.
function preview({ id, registry, enable, gate }) {
    const act = enable ? ["enable", ...gate ? ["--gate"] : []] : ["disable"];
    answer(id, "preview", "local-registry", ...act, registry);
}

// What an update changes inside its images, once a person unfolds it.
function inside() {
    const { id, files, inside } = page.dialog;
    if (!inside)
        answer(id, "inside", "changes", ...files);
}

// A dialog gets the answer of a verb, {value} or {error}, if it is still open.
async function answer(id, name, ...args) {
    const value = await verb(...args).then(value => ({ value }), error => ({ error: cockpit.message(error) }));
    if (page.dialog?.id === id)
        set({ dialog: { ...page.dialog, [name]: value } });
}

// The focus returns to the button that opened the dialog, to its pod where the button has gone, else to the page.
function close() {
    if (!page.dialog)
        return;
    set({ dialog: null });
    home = invoker;
    goHome();
    invoker = null;
}

const podElement = file => file && document.querySelector(`[data-pod="${CSS.escape(file)}"] [tabindex]`);

// The button may go later, with the status that says what the act has done: then the focus is on nothing. It goes home once
// more, unless the person has gone elsewhere.
function goHome() {
    if (!document.activeElement || document.activeElement === document.body)
        [home?.element, podElement(home?.pod), document.querySelector("h1")].find(element => element?.isConnected && element !== document.body)?.focus({ preventScroll: true });
}

/** Shows a pod that a reason names, also one that the search has left out. */
function show(file) {
    set({ tab: "overview", search: "", onlyUpdates: false, open: new Set([...page.open, file]) });
    const pod = podElement(file);
    pod?.scrollIntoView({ block: "center" });
    pod?.focus({ preventScroll: true });
}

function select(tab) {
    cockpit.location.go(tab === "overview" ? [] : [tab]);
}

function locate() {
    const tab = cockpit.location.path[0] === "details" ? "details" : "overview";
    set({ tab });
    if (tab === "details" && !page.plan)
        load(set);
}

function draw() {
    const actions = { set, act, select, ask, close, inside, show, dismiss: () => set({ result: null }), jump: path => cockpit.jump(path) };
    render(h(Boundary, null, h(Page, { ...page, ...actions, now: new Date() })), document.getElementById("app"));
    if (home && !page.dialog)
        goHome();
    showMark(model.mark(page));
    clearTimeout(timer);
    timer = cockpit.hidden ? 0 : setTimeout(draw, page.work?.deadline ? shownWork : shownAge);
}

let shown = "";
function showMark(mark) {
    if (JSON.stringify(mark) === shown)
        return;
    shown = JSON.stringify(mark);
    cockpit.transport.control("notify", { page_status: mark });
}

cockpit.transport.wait(() => {
    document.documentElement.lang = language();
    document.documentElement.dir = cockpit.language_direction ?? "ltr";
    cockpit.translate();
    const permission = cockpit.permission({ admin: true });
    const look = () => set({ limited: permission.allowed === false });
    permission.addEventListener("changed", look);
    daemon = new Daemon(set);
    look();
    cockpit.addEventListener("locationchanged", locate);
    cockpit.addEventListener("visibilitychange", draw);
    for (const event of ["pointerdown", "keydown"])
        document.addEventListener(event, () => { home = null; }, true);
    locate();
});
