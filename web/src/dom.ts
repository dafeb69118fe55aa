// Elements of a page.

export function make<Name extends keyof HTMLElementTagNameMap>(name: Name, classes = ""): HTMLElementTagNameMap[Name] {
    const element = document.createElement(name);
    if (classes) element.className = classes;
    return element;
}
