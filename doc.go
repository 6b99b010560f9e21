// Package rolewright adds Rolewright's watches to a program's controller-runtime manager. So one
// binary can have controllers of its own, and runs of Ansible, commands and Go code for custom
// resources.
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
// docs/go.md has a complete program, and says what the program has to take care of.
//
// # What is stable
//
// The names and signatures of this package, the meaning of the keys of watches.yaml and of the
// status of an object follow the module's semantic versioning: while it is at v0, a minor version
// may change them, and CHANGELOG.md says how. Structs may get more fields: name the fields in
// composite literals. Handler and HandlerFunc get no more methods. The other packages of the
// module are not for other programs. They change without notice, and so do the metrics, log lines
// and files of the module itself.
package rolewright
