// SPDX-License-Identifier: Apache-2.0
// What came of an act: in a title, and for each pod where there are several.
// @ts-check

import { h, Alert, Label } from "./ui.js";
import * as model from "./model.js";

export const Result = ({ result, ...rest }) =>
    h(Alert, { kind: result.kind, title: result.title, ...rest },
        result.text,
        result.outcomes.length > 0 && h("ul", { class: "outcomes" }, model.worstFirst(result.outcomes).map(outcome => {
            const { text, color } = model.results()[outcome.result] ?? { text: outcome.result };
            return h("li", { key: outcome.podManifest, "data-result": outcome.result },
                h("strong", null, outcome.podManifest), " ", h(Label, { color }, text), outcome.reason && h("div", { class: "small" }, outcome.reason));
        })));
