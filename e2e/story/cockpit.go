// SPDX-License-Identifier: Apache-2.0

package story

import (
	"errors"

	"github.com/kubic-project/image-update-agent/e2e/browser"
)

// Disabled is an error while a button can be pressed.
func Disabled(page *browser.Tab, button string) error {
	if page.Attribute(button, "aria-disabled") != "true" {
		return errors.New("it can be pressed")
	}
	return nil
}

// PageState selects the headline of the page.
const PageState = ".state"
