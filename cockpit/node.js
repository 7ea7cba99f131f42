// SPDX-License-Identifier: Apache-2.0
// What the node's updates depend on: registries, catalog, local registry, lock, and the agent. Folded where all is well.
// @ts-check

import { h, Fragment, Alert, Button, Cell, Fold, Label, Row, Table, Term, Terms, Time } from "./ui.js";
import { _, format, ngettext } from "./i18n.js";
import { allows } from "./status.js";
import * as model from "./model.js";

/** One alert for each host that does not answer. */
export const Outages = ({ status: s, now }) => {
    const all = model.outages(s);
    return all.length > 0 && h("div", { id: "registries", class: "page-panel" }, all.map(one => h(Alert, {
        kind: "warning", key: one.host, "data-host": one.host,
        title: format(one.mirror ? _("The mirror $0 does not answer") : _("The registry $0 does not answer"), one.host),
    },
    [...one.texts].join(" "), " ",
    one.files.size > 0 && format(_("Pods: $0."), [...one.files].sort().join(", ")),
    h("p", { class: "small" },
        _("Last answer:"), " ", one.last ? h(Time, { at: one.last, now }) : _("never"), " · ",
        format(ngettext("$0 failure in a row", "$0 failures in a row", one.failures), one.failures),
        one.retry && h(Fragment, null, " · ", _("Next try:"), " ", h(Time, { at: one.retry, now }))),
    h("details", null, h("summary", null, _("Details")),
        h("ul", null, [...one.details].map(text => h("li", { key: text }, text))),
        h("p", { class: "small" }, one.repositories.join(", "))))));
};

export function Sources({ status: s, now }) {
    if (s.sources.length === 0)
        return null;
    const insecure = s.sources.filter(one => one.insecure), ignored = s.sources.filter(one => one.hostsIgnored || one.skipped);
    const columns = [_("Repository"), _("Answers"), _("Last answer")];
    const text = insecure.length > 0 ? _("without verified TLS") : format(ngettext("$0 repository", "$0 repositories", s.sources.length), s.sources.length);
    return h(Fold, { id: "sources", title: _("Registries"), text, open: insecure.length + ignored.length > 0 },
        h(Table, { label: _("Registries"), columns },
            h("tbody", { class: "pf-v6-c-table__tbody" }, s.sources.map(one => h(Row, { key: one.repository + one.kind },
                h(Cell, { label: columns[0] }, h("div", null, one.repository, one.kind === "catalog" && h(Label, null, _("release catalog")),
                    one.hostsIgnored && h("div", { class: "error" }, one.hostsIgnored),
                    one.skipped && h("div", { class: "error" }, one.skipped))),
                h(Cell, { label: columns[1] }, h("div", null, one.host || "–", " ", h(Label, null, one.mirror ? _("mirror") : _("upstream")),
                    one.insecure && h(Label, { color: "orange" }, _("without verified TLS")))),
                h(Cell, { label: columns[2] }, one.lastSuccess ? h(Time, { at: one.lastSuccess, now }) : _("never")))))));
}

export function Catalog(page) {
    const { status: { catalog: c }, now } = page;
    if (!c)
        return null;
    return h(Fold, {
        id: "catalog", title: _("Release catalog"), open: c.expired || Boolean(c.error),
        text: c.version ? format(_("version $0"), c.version) : _("no version was verified yet"),
    },
    c.error && h(Alert, { kind: "warning", title: _("There is no newer version") }, c.error, c.failures > 0 && format(ngettext(" ($0 failure in a row)", " ($0 failures in a row)", c.failures), c.failures),
        c.retryAt && h("p", { class: "small" }, _("Next try:"), " ", h(Time, { at: c.retryAt, now }))),
    h(Terms, null,
        h(Term, { name: _("Catalog and channel") }, c.catalog),
        h(Term, { name: _("Version") }, c.version || "–", c.expired && h(Label, { color: "orange" }, _("expired"))),
        c.created && h(Term, { name: _("Published") }, h(Time, { at: c.created, now })),
        h(Term, { name: _("Expires") }, c.expires ? h(Time, { at: c.expires, now }) : _("never")),
        h(Term, { name: _("Images of this node") }, c.images),
        c.lastSuccess && h(Term, { name: _("Last answer") }, h(Time, { at: c.lastSuccess, now })),
        h(Term, { name: _("Digest") }, h("span", { class: "digest" }, c.digest))),
    c.error && h(Button, { id: "forget-catalog", disabled: allows(page, "ForgetCatalog"), onClick: () => page.ask({ kind: "catalog" }) }, _("Forget the verified version…")));
}

const positions = () => ({ fallback: _("asked last"), gate: _("asked first"), "": _("not asked") });

export function LocalRegistry(page) {
    const { status: s, now } = page, own = s.localRegistry;
    const offered = model.registriesOf(s);
    if (!own && offered.length === 0)
        return null;
    const lost = own?.lost ?? [], errors = [own?.down, own?.error, own?.wantedError].filter(Boolean);
    const ask = (registry, enable) => () => page.ask({ kind: "registry", registry, enable });
    return h(Fold, {
        id: "local-registry", title: _("Local registry"), open: lost.length + errors.length > 0,
        text: own?.registries.length ? own.registries.map(r => r.registry).join(", ") : _("not enabled"),
    },
    h("p", null, _("containerd can ask this node itself for images, so that pods start without the registry.")),
    errors.map(text => h(Alert, { kind: "warning", key: text, title: text === own.down ? _("The local registry does not answer: container starts need the registry") : _("The local registry is not up to date") }, text)),
    lost.map(one => h(Alert, { kind: "warning", key: one.registry, title: format(_("containerd no longer asks the local registry for $0"), one.registry) },
        format(_("Wanted: $0. Now: $1."), positions()[one.wanted] ?? one.wanted, positions()[one.position] ?? one.position), " ", one.reason)),
    own?.registries.map(r => h("div", { key: r.registry, "data-registry": r.registry },
        h("h3", { class: "head" }, h("span", null, r.registry, " ", h(Label, null, positions()[r.position] ?? r.position)),
            h(Button, { small: true, "data-do": "disable", disabled: allows(page, "DisableLocalRegistry"), onClick: ask(r.registry, false) }, _("Disable…"))),
        r.awaySince && h("p", null, _("The registry is away. Its last answer:"), " ", h(Time, { at: r.awaySince, now })),
        h("p", null, _("Used last:"), " ", r.lastServed ? h(Time, { at: r.lastServed, now }) : _("not since the boot")),
        h("ul", null,
            r.tags.map(tag => h("li", { key: tag.image + tag.tag }, format(_("Ready for $0:$1"), tag.image, tag.tag), tag.lastServed && h(Fragment, null, " · ", _("used"), " ", h(Time, { at: tag.lastServed, now })),
                h("div", { class: "small digest" }, tag.digest))),
            r.unanswered.map(tag => h("li", { class: "error", key: tag.image + tag.tag }, format(_("Not answered: $0:$1"), tag.image, tag.tag), " ", tag.reason))))),
    own?.answers && h("p", { class: "small" }, format(_("Since the boot it answered $0 requests, did not know $1 tags and refused $2 requests."), own.answers.served, own.answers.unknown, own.answers.refused)),
    offered.map(registry => h("p", { class: "head", key: registry }, registry, h(Button, { small: true, "data-do": "enable", disabled: allows(page, "EnableLocalRegistry"), "aria-label": format(_("Enable the local registry for $0"), registry), onClick: ask(registry, true) }, _("Enable…")))));
}

export function Lock(page) {
    const { status: { lock }, now } = page;
    if (!lock)
        return null;
    const isBad = lock.kept || Boolean(lock.error) || Boolean(lock.warning);
    return h(Fold, { id: "lock", title: _("Fleet lock"), text: model.lockText(lock), open: isBad },
        lock.warning && h(Alert, { kind: "danger", title: _("Two nodes have the lock") }, lock.warning),
        lock.error && h(Alert, { kind: "warning", title: model.lockError(lock) }, lock.error, lock.kind && ` (${lock.kind})`),
        h(Terms, null,
            h(Term, { name: _("State") }, model.lockText(lock), lock.since && h(Fragment, null, " ", h(Time, { at: lock.since, now }))),
            lock.podManifests.length > 0 && h(Term, { name: _("For") }, lock.podManifests.join(", ")),
            lock.holders.length > 0 && h(Term, { name: _("Held by") }, lock.holders.map(holder => h("div", { key: holder.id }, holder.id, holder.gone && h(Label, { color: "orange" }, _("no node of the cluster")), holder.since && h(Fragment, null, " ", h(Time, { at: holder.since, now })), holder.gone && " ", holder.gone && _("(no node of the cluster)")))),
            lock.retryAt && h(Term, { name: _("Next try") }, h(Time, { at: lock.retryAt, now })),
            lock.lease
                ? h(Term, { name: _("Lease") }, lock.lease)
                : h(Term, { name: _("Server and group") }, lock.server, " ", lock.group),
            h(Term, { name: _("This node") }, lock.id),
            h(Term, { name: _("Covers") }, lock.pods === "all" ? _("all pods") : _("etcd and kube-apiserver")),
            lock.workedAt && h(Term, { name: _("Worked last") }, h(Time, { at: lock.workedAt, now }))),
        ["held", "releasing"].includes(lock.state) && h(Button, { id: "release-lock", disabled: allows(page, "ReleaseLock"), onClick: () => page.ask({ kind: "lock" }) }, _("Release the lock…")));
}

export const Agent = ({ status: s }) => h(Fold, { id: "agent", title: _("Image update agent"), text: s.version },
    h(Terms, null,
        h(Term, { name: _("Version") }, s.version),
        s.budget && h(Term, { name: _("Requests to registries") }, format(_("$0 of $1 left in this hour"), s.budget.remaining, s.budget.perHour))));
