package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/watches"
)

func newGenerateSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of watches.yaml, or of the objects of a kind, for editors",
		Long: `Print the JSON Schema of watches.yaml, or of the objects of a kind, from its CRD in
config/crd/bases. Editors use it to complete and check files. For editors with
yaml-language-server, such as VS Code, begin the file with the line

  # yaml-language-server: $schema=watches.schema.json`,
		Example: `  rolewright generate schema > watches.schema.json
  rolewright generate schema Memcached > config/samples/memcached.schema.json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: onlyFirst(definedKinds),
		RunE: func(cmd *cobra.Command, args []string) error {
			var schema any = watches.JSONSchema()
			if len(args) == 1 {
				var err error
				if schema, err = schemaOfKind(args[0]); err != nil {
					return usage(err)
				}
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			out.SetEscapeHTML(false)
			return out.Encode(schema)
		},
	}
}

// kindDefinitions is the pattern of a project's CRD files.
const kindDefinitions = defaultDefinitions + "/bases/*.y*ml"

// schemaOfKind returns the schema of the kind's objects. Several versions become
// alternatives.
func schemaOfKind(kind string) (any, error) {
	var kinds []string
	for _, path := range globbed(kindDefinitions) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		kinds = append(kinds, crd.Spec.Names.Kind)
		if crd.Spec.Names.Kind != kind {
			continue
		}
		var versions []any
		for _, v := range crd.Spec.Versions {
			if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
				continue
			}
			s := v.Schema.OpenAPIV3Schema.DeepCopy()
			if s.Properties == nil {
				s.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
			}
			for key, value := range map[string]string{"apiVersion": crd.Spec.Group + "/" + v.Name, "kind": kind} {
				s.Properties[key] = apiextensionsv1.JSONSchemaProps{Type: "string", Enum: []apiextensionsv1.JSON{{Raw: fmt.Appendf(nil, "%q", value)}}}
			}
			s.Required = append(s.Required, "apiVersion", "kind")
			versions = append(versions, s)
		}
		if len(versions) == 1 {
			return versions[0], nil
		}
		return map[string]any{"anyOf": versions}, nil
	}
	return nil, fmt.Errorf("no CRD of the kind %s in %s; there are: %s", kind, kindDefinitions, strings.Join(kinds, ", "))
}

// projectRoles returns the names of the roles of the project in this directory.
func projectRoles() []string {
	var names []string
	for _, dir := range globbed("roles/*") {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			names = append(names, filepath.Base(dir))
		}
	}
	return names
}

func newGenerateArgspecCommand() *cobra.Command {
	var o filesOptions
	cmd := &cobra.Command{
		Use:   "argspec [ROLE...]",
		Short: "Write argument specs, from the defaults, for roles that have none",
		Long: `Write meta/argument_specs.yml for the given roles, or for all roles in roles/ that
have none. Types come from the values in defaults/main.yml, descriptions from the
comments above them. Then add by hand which options are required, and their choices:
Ansible checks them before the first task, and "generate crd" generates the CRD from
them.`,
		Example:           "  rolewright generate argspec memcached",
		ValidArgsFunction: roles,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.start(cmd)
			named := len(args) > 0
			if !named {
				if args = projectRoles(); len(args) == 0 {
					return usage(errors.New("there are no roles in roles/: go to the directory of a project, or add a kind with \"rolewright create api\""))
				}
			}
			var files []scaffold.File
			for _, name := range args {
				role := filepath.Join("roles", name)
				if !filepath.IsLocal(role) || filepath.Dir(role) != "roles" {
					return usage(fmt.Errorf("%q: the name of a role in roles/ expected", name))
				}
				if _, err := os.Stat(role); err != nil && named {
					return usage(fmt.Errorf("there is no role %s: %w", name, err))
				}
				f, err := scaffold.ArgumentSpec(".", role)
				if err == nil {
					files = append(files, f)
				} else if named || !errors.Is(err, os.ErrExist) && !errors.Is(err, scaffold.ErrNoDefaults) {
					return usage(err)
				}
			}
			return o.write(files, nil, "next: say which options are required, then rolewright generate crd")
		},
	}
	o.bindOutput(cmd)
	return cmd
}
