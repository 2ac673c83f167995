//go:build unix

package cli

import "github.com/spf13/cobra"

func (a *app) commands() []*cobra.Command { return append(a.everywhere(), a.run()) }
