// Package rolewright adds watches of Rolewright to a manager of controller-runtime that a
// program has: its own controllers, and runs of Ansible, commands and Go code for custom
// resources, in one binary.
//
//	func main() {
//		mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
//		// …
//		watches, err := rolewright.LoadWatches("watches.yaml")
//		// …
//		err = rolewright.Add(mgr, rolewright.Options{}, watches...)
//		// …
//		err = mgr.Start(ctrl.SetupSignalHandler())
//	}
//
// docs/go.md has a whole program, and says what the program has to see to.
//
// # What is stable
//
// The names and signatures of this package, what the keys of watches.yaml mean, and what the
// status of an object says follow semantic versioning with the module: as long as that is
// v0, a minor version may change them, and CHANGELOG.md says how. Structs may get further
// fields: name the fields where you write one. Handler and HandlerFunc get no further
// methods. The other packages of the module are not for other programs: they change without
// notice, as does which of its own metrics, log lines and files a version has.
package rolewright
