// SPDX-License-Identifier: Apache-2.0
// The second tab: what the next cycle would do, and what `doctor` finds.
// @ts-check

import { h, Fragment, Alert, Button, Card, Icon, Label, Spinner, Time, Why } from "./ui.js";
import { _, format } from "./i18n.js";
import { verb } from "./daemon.js";
import { Edits } from "./work.js";
import * as model from "./model.js";

const icons = { ok: "ok", advice: "info", warning: "warning", failed: "danger" };
const colors = { warning: "orange", failed: "red" };

/** Asks both; set gets the answers as {plan, doctor}, each {value, at} or {error}. What was there stays until then. */
export async function load(set) {
    const answer = async run => {
        try {
            return { value: await run(), at: new Date().toISOString() };
        } catch (error) {
            return { error: error.message || error.problem || String(error) };
        }
    };
    await Promise.all([
        answer(() => verb("plan", "--offline")).then(plan => set({ plan })),
        answer(() => verb("doctor")).then(doctor => set({ doctor })),
    ]);
}

export const Details = page => h(Fragment, null, h(Plan, page), h(Doctor, page), h(Journal, page));

const Again = ({ id, page }) => h(Button, { id, busy: !page.plan || !page.doctor, onClick: () => { page.set({ plan: null, doctor: null }); load(page.set); } }, _("Ask again"));

// What both have before their answer, or instead of it.
const Missing = ({ answer }) => !answer
    ? h("p", null, h(Spinner), " ", _("Asking…"))
    : h(Alert, { kind: "warning", title: _("It could not be asked") }, answer.error, h("p", null, _("It may need administrative access.")));

function Plan(page) {
    const answer = page.plan;
    return h(Card, { id: "plan", title: _("What the next cycle does"), actions: h(Again, { id: "ask-again", page }) },
        !answer?.value
            ? h(Missing, { answer })
            : h(Fragment, null,
                h("p", { class: "small" }, _("As of"), " ", h(Time, { at: answer.at, now: page.now })),
                answer.value.steps.length === 0 ? h("p", null, _("Nothing without approval.")) : h("ol", null, answer.value.steps.map((step, n) => h("li", { key: n }, model.stepText(step)))),
                answer.value.podManifests.filter(pod => pod.change || pod.error || pod.holds.length > 0).map(pod => h(PodPlan, { key: pod.podManifest, pod }))));
}

// What an apply would do to a pod, and what keeps it from that.
const PodPlan = ({ pod }) => h("div", { class: "finding" },
    h("strong", null, pod.podManifest), " ", pod.change && h(Label, null, model.changeName(pod.change)),
    pod.change && h("span", { class: "small" }, " ", model.standing(pod)),
    h("ul", null, pod.images.filter(image => image.change).map(image => h("li", { key: image.image }, format(_("$0: $1 → $2"), model.lastPart(image.image), image.from || "–", image.to), h("div", { class: "small digest" }, image.digest)))),
    h(Edits, { edits: pod.edits }),
    pod.holds.map(hold => h("p", { class: "trouble", key: hold.name + hold.reason }, h(Icon, { kind: "warning" }), " ", h(Why, model.holdReason(hold)), h("div", { class: "small" }, model.remedy(hold)))),
    pod.error && h("p", { class: "error" }, h(Why, model.failure({ kind: pod.errorKind, text: pod.error }))));

function Doctor({ doctor: answer }) {
    const findings = answer?.value ?? [];
    const bad = model.gravestFirst(findings.filter(finding => finding.verdict !== "ok")), good = findings.filter(finding => finding.verdict === "ok");
    return h(Card, { id: "doctor", title: _("Checks of the node") },
        !answer?.value && h(Missing, { answer }),
        bad.map((finding, n) => h(Finding, { key: n, finding })),
        answer?.value && bad.length === 0 && h("p", null, h(Icon, { kind: "ok" }), " ", _("All checks passed.")),
        good.length > 0 && h("details", null, h("summary", null, _("Checks that passed")), good.map((finding, n) => h(Finding, { key: n, finding }))));
}

const Finding = ({ finding: f }) => h("div", { class: "finding", "data-verdict": f.verdict },
    h(Icon, { kind: icons[f.verdict] ?? "info" }), " ", h("strong", null, f.check), " ", h(Label, { color: colors[f.verdict] }, model.verdict(f.verdict)),
    h("div", null, f.detail), f.remedy && h("div", { class: "small" }, f.remedy));

const Journal = ({ jump }) => h(Card, { id: "journal", title: _("Journal and service") },
    h("div", { class: "buttons" },
        h(Button, { id: "to-journal", onClick: () => jump("/system/logs#/?prio=debug&service=image-update-agent.service") }, _("Show the journal")),
        h(Button, { id: "to-service", onClick: () => jump("/system/services#/image-update-agent.service") }, _("Show the service"))));
