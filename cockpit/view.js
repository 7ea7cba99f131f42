// SPDX-License-Identifier: Apache-2.0
// The page.
// @ts-check

import { h, Fragment, Alert, Button, Empty, Tabs, Time } from "./ui.js";
import { _ } from "./i18n.js";
import { Header, Holds, Status } from "./status.js";
import { Work } from "./work.js";
import { Pods } from "./pods.js";
import { Agent, Catalog, LocalRegistry, Lock, Outages, Sources } from "./node.js";
import { History } from "./history.js";
import { Details } from "./details.js";
import { Dialogs } from "./dialogs.js";

export function Page(page) {
    if (!page.read)
        return h("main", { class: "page" }, h(Empty, { icon: "busy", title: _("Reading the status of the node…") }));
    const { status: s, tab, said } = page;
    return h("main", { class: "page", "aria-busy": page.doing.length > 0 ? "true" : "false" },
        // The same text twice is a new element, so that it is said twice.
        h("div", { role: "status", "aria-live": "polite", class: "pf-v6-screen-reader", id: "said" }, h("p", { key: said.n }, said.text)),
        h(Header, page),
        h(Notices, page),
        h(Tabs, { label: _("Views"), current: tab, onSelect: page.select, tabs: [["overview", _("Overview")], ["details", _("Plan and checks")]] }),
        h("div", { id: "panel-" + tab, role: "tabpanel", class: "page-panel", "aria-labelledby": "tab-" + tab },
            tab === "details"
                ? h(Details, page)
                : s && [Status, Outages, Work, Pods, Holds, Lock, Catalog, LocalRegistry, Sources, History, Agent].map((part, n) => h(part, { ...page, key: n }))),
        s && page.dialog && h(Dialogs, page));
}

function Notices(page) {
    const { status: s, up, noBus, error, limited, allowed, now } = page;
    return h(Fragment, null,
        limited && !allowed?.length && h(Alert, { id: "limited", title: _("You have limited access") },
            _("You can read everything. To check, apply, roll back or hold, turn on administrative access.")),
        !up && h(Alert, {
            id: "down", kind: "danger", title: noBus ? _("The system bus does not answer") : _("The daemon does not run"),
            actions: h(Button, { kind: "link", id: "down-service", onClick: () => page.jump("/system/services#/image-update-agent.service") }, _("Show the service")),
        },
        noBus ? _("After a restart of the bus, log out of Cockpit and in again.") : _("Pods run on without it, but nothing is checked, downloaded or applied."), " ",
        s ? h(Fragment, null, _("The status below was written"), " ", h(Time, { at: s.written, now }), ".") : _("It has left no status.")),
        up && error && h(Alert, { id: "unread", kind: "warning", title: _("The status cannot be read") }, error));
}
