// SPDX-License-Identifier: Apache-2.0
// The state of the page, and what changes it.
// @ts-check

import "./theme.js";
import { h, render } from "./vendor/preact.js";
import { Daemon } from "./daemon.js";
import { Page } from "./view.js";
import { load } from "./details.js";
import { language } from "./i18n.js";
import * as model from "./model.js";

const cockpit = window.cockpit;
const interval = 15000; // ms between two readings of the status, should a signal be missed, and for "3 minutes ago"

let page = {
    status: null, read: false, up: false, noBus: false, error: "", // what the daemon said
    pulls: [], work: null, // what it does now
    allowed: null, limited: false, // what the caller may do
    tab: "overview", dialog: null, plan: null, doctor: null, wholeHistory: false,
    doing: "", result: null, said: "", // what the person does, and what came of it
};
let daemon;

function set(change) {
    page = { ...page, ...change };
    draw();
}

async function act(what, run, done) {
    set({ doing: what, result: null });
    let result;
    try {
        result = model.outcome(what, await run(daemon), done);
    } catch (error) {
        result = model.problem(error);
    }
    set({ doing: "", result, said: result.title });
    daemon.refresh();
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
    const actions = {
        set, act, select, ask: dialog => set({ dialog: model.opened(page.status, dialog) }), close: () => set({ dialog: null }),
        dismiss: () => set({ result: null }), jump: path => cockpit.jump(path),
    };
    render(h(Page, { ...page, ...actions, now: new Date() }), document.getElementById("app"));
    showMark(model.mark(page));
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
    cockpit.translate();
    const permission = cockpit.permission({ admin: true });
    const look = () => set({ limited: permission.allowed === false });
    permission.addEventListener("changed", look);
    daemon = new Daemon(set);
    look();
    cockpit.addEventListener("locationchanged", locate);
    locate();
    setInterval(() => {
        if (!document.hidden) {
            draw();
            daemon.look();
        }
    }, interval);
});
