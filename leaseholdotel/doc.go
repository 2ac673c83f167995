// Package leaseholdotel makes OpenTelemetry metrics and traces of what leasehold's handles do. One line switches it on:
//
//	semaphore.New(rdb, semaphore.Config{…, Observer: leaseholdotel.Default()})
//
// One [Observer] serves any number of handles. The file docs/telemetry.md lists the
// instruments, and has a recipe for Prometheus, a dashboard and alert rules.
package leaseholdotel
