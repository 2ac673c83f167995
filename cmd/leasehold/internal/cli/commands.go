package cli

import "github.com/spf13/cobra"

func (a *app) everywhere() []*cobra.Command {
	return []*cobra.Command{a.ls(), a.show(), a.doctor(), a.top(), a.serve(), a.setLimit(), a.revoke(), a.demo()}
}
