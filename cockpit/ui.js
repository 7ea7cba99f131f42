// SPDX-License-Identifier: Apache-2.0
// The components of PatternFly that the page uses.
// @ts-check

import { h, Component, Fragment } from "./vendor/preact.js";
import { _, clock, relative } from "./i18n.js";

export { h, Fragment };

const paths = { // 16 x 16
    ok: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm3.6 5.2-4.2 4.6a.8.8 0 0 1-1.2 0L4.4 9l1.1-1.1 1.3 1.3 3.7-4z",
    info: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm.9 11H7.1V7h1.8zM8 5.8a1 1 0 1 1 0-2.1 1 1 0 0 1 0 2.1z",
    warning: "M8 1.3 15.4 14H.6zM7.2 6v4h1.6V6zm0 5v1.5h1.6V11z",
    danger: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM7.1 4h1.8v5H7.1zm0 6.2h1.8V12H7.1z",
    unknown: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 2a5 5 0 1 1 0 10A5 5 0 0 1 8 3z",
    close: "M3.2 2 2 3.2 6.8 8 2 12.8 3.2 14 8 9.2l4.8 4.8 1.2-1.2L9.2 8 14 3.2 12.8 2 8 6.8z",
};

export const Icon = ({ kind }) => kind === "busy"
    ? h(Spinner)
    : h("svg", { class: `icon icon-${kind}`, viewBox: "0 0 16 16", width: "1em", height: "1em", "aria-hidden": "true" },
        h("path", { d: paths[kind], fill: "currentColor", "fill-rule": "evenodd" }));

export const Spinner = () =>
    h("svg", { class: "pf-v6-c-spinner pf-m-inline", role: "progressbar", viewBox: "0 0 100 100", "aria-label": _("Working") },
        h("circle", { class: "pf-v6-c-spinner__path", cx: 50, cy: 50, r: 45, fill: "none" }));

// A disabled button keeps the focus, and its title says why it is disabled.
export const Button = ({ kind = "secondary", danger, small, busy, disabled, children, onClick, ...rest }) => {
    const classes = ["pf-v6-c-button", "pf-m-" + kind, danger && "pf-m-danger", small && "pf-m-small",
        busy && "pf-m-progress pf-m-in-progress", (disabled || busy) && "pf-m-aria-disabled"];
    const title = typeof disabled === "string" ? disabled : undefined;
    return h("button", {
        type: "button", class: classes.filter(Boolean).join(" "), title, "aria-description": title,
        "aria-disabled": disabled || busy ? "true" : undefined, ...rest, onClick: disabled || busy ? event => event.preventDefault() : onClick,
    },
    busy && h("span", { class: "pf-v6-c-button__progress" }, h(Spinner)),
    h("span", { class: "pf-v6-c-button__text" }, children));
};

export const Label = ({ color, children, ...rest }) =>
    h("span", { class: "pf-v6-c-label pf-m-compact" + (color ? " pf-m-" + color : ""), ...rest },
        h("span", { class: "pf-v6-c-label__content" }, h("span", { class: "pf-v6-c-label__text" }, children)));

export const Alert = ({ kind = "info", title, children, actions, onClose, ...rest }) =>
    h("div", { class: "pf-v6-c-alert pf-m-inline pf-m-" + (kind === "ok" ? "success" : kind), ...rest },
        h("div", { class: "pf-v6-c-alert__icon" }, h(Icon, { kind })),
        h("p", { class: "pf-v6-c-alert__title" }, title),
        onClose && h("div", { class: "pf-v6-c-alert__action" },
            h("button", { type: "button", class: "pf-v6-c-button pf-m-plain", "aria-label": _("Close"), onClick: onClose },
                h("span", { class: "pf-v6-c-button__icon" }, h(Icon, { kind: "close" })))),
        children && h("div", { class: "pf-v6-c-alert__description" }, children),
        actions && h("div", { class: "pf-v6-c-alert__action-group" }, actions));

export const Card = ({ id, title, actions, children }) =>
    h("section", { id, class: "pf-v6-c-card", "aria-labelledby": id + "-title" },
        h("div", { class: "pf-v6-c-card__header head" },
            h("h2", { id: id + "-title", class: "pf-v6-c-card__title-text" }, title),
            actions && h("div", { class: "buttons" }, actions)),
        h("div", { class: "pf-v6-c-card__body" }, children));

// A card that is folded while all is well: its title says that.
export const Fold = ({ id, title, text, open, children }) =>
    h("section", { id, class: "pf-v6-c-card", "aria-labelledby": id + "-title" },
        h("details", { open },
            h("summary", { class: "pf-v6-c-card__header" },
                h("h2", { id: id + "-title", class: "pf-v6-c-card__title-text fold-title" }, title), text && h("span", { class: "small" }, " ", text)),
            h("div", { class: "pf-v6-c-card__body" }, children)));

// How long ago, and the time itself, which nobody has to point at.
export const Time = ({ at, now, zone }) => {
    const then = new Date(at);
    return h("time", { dateTime: at }, relative(then, now), " ", h("span", { class: "small" }, clock(then, { now, zone })));
};

/** A reason in the person's language, with the daemon's own words where they say more. */
export const Why = ({ text, cause }) => h(Fragment, null, text, cause && h("span", { class: "small" }, " ", cause));

/** Shows a fault of the page instead of an empty one. */
export class Boundary extends Component {
    componentDidCatch(error) {
        console.error(error);
        this.setState({ error });
    }

    render() {
        const { error } = this.state;
        return error
            ? h("main", { class: "page" }, h(Empty, {
                icon: "danger", title: _("This page has a fault"), actions: h(Button, { kind: "primary", onClick: () => location.reload() }, _("Load the page again")),
            }, String(error), h("p", null, _("The agent is not affected. On the node, image-update-agent status shows the same."))))
            : this.props.children;
    }
}

// value is in percent; null: it is not known.
export const Progress = ({ id, title, value, text }) =>
    h("div", { class: "pf-v6-c-progress pf-m-sm", id },
        h("div", { class: "pf-v6-c-progress__description", id: id + "-title" }, title),
        h("div", { class: "pf-v6-c-progress__status", "aria-hidden": "true" },
            h("span", { class: "pf-v6-c-progress__measure" }, text)),
        h("div", {
            class: "pf-v6-c-progress__bar" + (value === null ? " unknown" : ""), role: "progressbar",
            "aria-labelledby": id + "-title", "aria-valuemin": 0, "aria-valuemax": 100,
            "aria-valuenow": value ?? undefined, "aria-valuetext": text,
        },
        h("div", { class: "pf-v6-c-progress__indicator", style: { width: (value ?? 30) + "%" } })));

export const Terms = ({ children }) => h("dl", { class: "pf-v6-c-description-list pf-m-horizontal" }, children);

export const Term = ({ name, children, ...rest }) =>
    h("div", { class: "pf-v6-c-description-list__group", ...rest },
        h("dt", { class: "pf-v6-c-description-list__term" }, h("span", { class: "pf-v6-c-description-list__text" }, name)),
        h("dd", { class: "pf-v6-c-description-list__description" },
            h("div", { class: "pf-v6-c-description-list__text" }, children)));

// columns are the titles; a row is a list of cells. Below 768 px each cell carries its title.
export const Table = ({ id, label, columns, children }) =>
    h("table", { id, class: "pf-v6-c-table pf-m-grid-md pf-m-compact", "aria-label": label },
        h("thead", { class: "pf-v6-c-table__thead" },
            h("tr", { class: "pf-v6-c-table__tr" },
                columns.map(title => h("th", { class: "pf-v6-c-table__th", scope: "col", key: title }, title)))),
        children);

export const Row = ({ children, ...rest }) => h("tr", { class: "pf-v6-c-table__tr", ...rest }, children);

export const Cell = ({ label, children, ...rest }) =>
    h("td", { class: "pf-v6-c-table__td", "data-label": label, ...rest }, children);

// The browser's own dialog keeps the focus inside, and Escape closes it. onDo gets the fields of the form. While busy, the
// act goes on, and closing only hides the dialog. again: what it shows has changed, and is read again before it is done.
// unread: why it cannot be done yet, since a part of what it shows is still being read.
export const Dialog = ({ title, children, action, danger, busy, again, unread, onDo, onAgain, onClose }) => {
    const open = element => element && !element.open && element.showModal();
    const submit = event => {
        event.preventDefault();
        if (busy || unread)
            return;
        if (again)
            return onAgain();
        onDo(new FormData(event.target));
    };
    const isDanger = danger && !again;
    return h("dialog", { id: "dialog", class: "pf-v6-c-modal-box pf-m-sm", "aria-labelledby": "dialog-title", ref: open, onClose },
        h("form", { method: "dialog", onSubmit: submit },
            h("header", { class: "pf-v6-c-modal-box__header" },
                h("h1", { class: "pf-v6-c-modal-box__title", id: "dialog-title" }, title)),
            h("div", { class: "pf-v6-c-modal-box__body" }, children),
            h("footer", { class: "pf-v6-c-modal-box__footer" },
                h(Button, { type: "submit", kind: isDanger ? "danger" : "primary", busy, disabled: unread }, again ? _("Read again") : action),
                h(Button, { kind: "link", "data-do": "dismiss", onClick: onClose }, busy ? _("Continue in the background") : _("Cancel")))));
};

// A field of a form, with what is wrong with it.
export const Field = ({ id, label, help, ...rest }) =>
    h("div", { class: "pf-v6-c-form__group" },
        h("label", { class: "pf-v6-c-form__label", for: id }, h("span", { class: "pf-v6-c-form__label-text" }, label)),
        h("span", { class: "pf-v6-c-form-control" },
            h("input", { id, "aria-describedby": help ? id + "-help" : undefined, ...rest })),
        help && h("div", { class: "small", id: id + "-help" }, help));

export const Empty = ({ icon, title, children, actions }) =>
    h("div", { class: "pf-v6-c-empty-state" },
        h("div", { class: "pf-v6-c-empty-state__content" },
            h("div", { class: "pf-v6-c-empty-state__header" },
                h("div", { class: "pf-v6-c-empty-state__icon" }, h(Icon, { kind: icon })),
                h("div", { class: "pf-v6-c-empty-state__title" },
                    h("h1", { class: "pf-v6-c-empty-state__title-text" }, title))),
            children && h("div", { class: "pf-v6-c-empty-state__body" }, children),
            actions && h("div", { class: "pf-v6-c-empty-state__footer" },
                h("div", { class: "pf-v6-c-empty-state__actions" }, actions))));

// tabs are [name, title] pairs. Arrow keys change the tab, as in the ARIA pattern.
export const Tabs = ({ label, tabs, current, onSelect }) => {
    const move = event => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step)
            return;
        const at = tabs.findIndex(([name]) => name === current);
        const [next] = tabs[(at + step + tabs.length) % tabs.length];
        onSelect(next);
        document.getElementById("tab-" + next)?.focus();
    };
    return h("div", { class: "pf-v6-c-tabs" },
        h("ul", { class: "pf-v6-c-tabs__list", role: "tablist", "aria-label": label, onKeyDown: move },
            tabs.map(([name, title]) =>
                h("li", { key: name, class: "pf-v6-c-tabs__item" + (name === current ? " pf-m-current" : ""), role: "presentation" },
                    h("button", {
                        type: "button", class: "pf-v6-c-tabs__link", role: "tab", id: "tab-" + name,
                        "aria-selected": name === current ? "true" : "false", "aria-controls": "panel-" + name,
                        tabIndex: name === current ? 0 : -1, onClick: () => onSelect(name),
                    }, h("span", { class: "pf-v6-c-tabs__item-text" }, title))))));
};
